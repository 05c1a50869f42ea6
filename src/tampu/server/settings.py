"""Server settings: flags win over the environment (``TAMPU_…``), which wins over ``tampu.toml``."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from tampu.model.errors import InvalidConfig
from tampu.server.options import OPTIONS

DEFAULT_FILE = "tampu.toml"


def _of(name: str) -> Any:
    option = OPTIONS[name]
    return Field(option.default, description=option.help, **option.limits)


class ServerSettings(BaseSettings):
    """One field per setting; defaults and help are in `options`."""

    model_config = SettingsConfigDict(env_prefix="TAMPU_", extra="ignore", frozen=True)

    url: str = _of("url")
    host: str = _of("host")
    port: int = _of("port")
    auth: bool = _of("auth")
    key_file: Path | None = _of("key_file")
    durability: str | None = _of("durability")
    journal_retention: float = _of("journal_retention")
    maintenance: bool = _of("maintenance")
    log_format: Literal["auto", "json", "pretty"] = _of("log_format")
    log_level: Literal["debug", "info", "warning", "error"] = _of("log_level")
    access_log: bool = _of("access_log")
    max_body: int = _of("max_body")
    max_frame: int = _of("max_frame")
    max_headers: int = _of("max_headers")
    max_batch: int = _of("max_batch")
    max_wait: float = _of("max_wait")
    max_connections: int = _of("max_connections")
    max_body_bytes: int = _of("max_body_bytes")
    max_polls: int = _of("max_polls")
    max_streams: int = _of("max_streams")
    max_feeds: int = _of("max_feeds")
    max_listings: int = _of("max_listings")
    read_timeout: float = _of("read_timeout")
    idle_timeout: float = _of("idle_timeout")
    stop_timeout: float = _of("stop_timeout")
    key_rate: float = _of("key_rate")
    key_burst: int = _of("key_burst")
    tenant_rate: float = _of("tenant_rate")
    tenant_burst: int = _of("tenant_burst")
    login_attempts: int = _of("login_attempts")
    oidc_issuer: str | None = _of("oidc_issuer")
    oidc_audience: str | None = _of("oidc_audience")
    oidc_jwks_url: str | None = _of("oidc_jwks_url")
    oidc_claim: str = _of("oidc_claim")
    public_metrics: bool = _of("public_metrics")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the framework calls it so
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the framework calls it so
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = cls.model_config.get("toml_file")
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=file))

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def load(file: Path | None = None, **flags: Any) -> ServerSettings:
    """Load the settings. Refuses invalid ones, and a public address without auth."""
    if file is not None and not file.is_file():
        raise InvalidConfig(f"there is no file {file}", field="config")
    path = file or Path(DEFAULT_FILE)

    class Here(ServerSettings):
        model_config = SettingsConfigDict(env_prefix="TAMPU_", extra="ignore", frozen=True, toml_file=path)

    try:
        _refuse_unknown(path)
        made = Here(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InvalidConfig(f"{name}: {first['msg']}", field=name) from None
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}", field="config") from None
    if not made.auth and not made.loopback:
        raise InvalidConfig(
            f"refusing to serve {made.host} with auth off", field="auth", hint="turn auth on, or listen on 127.0.0.1"
        )
    if made.oidc_issuer and not made.oidc_audience:
        raise InvalidConfig("oidc_issuer needs oidc_audience", field="oidc_audience")
    return made


def _refuse_unknown(path: Path) -> None:
    """An unknown setting is most likely misspelled."""
    import tomllib

    if path.is_file():
        unknown = tomllib.loads(path.read_text()).keys() - ServerSettings.model_fields.keys() - {"lake"}
        if unknown:
            raise ValueError(f"unknown setting: {', '.join(sorted(unknown))}")
