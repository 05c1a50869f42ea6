"""Server settings: flags win over the environment (``TAMPU_…``), which wins over ``tampu.toml``."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tampu.model.decoders import convert
from tampu.model.errors import InvalidConfig
from tampu.model.times import seconds_of

DEFAULT_FILE = "tampu.toml"


def _about(help: str, **limits: Any) -> Meta:
    return Meta(description=help, **limits)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Each setting with its limits and help, which is also that of its flag and of the reference page."""

    url: Annotated[str, _about("The store: a file, postgresql://…, redis://…")] = "tampu.db"
    host: Annotated[str, _about("The address to listen on")] = "127.0.0.1"
    port: Annotated[int, _about("The port to listen on; 0 picks a free one", ge=0, le=65535)] = 8400
    auth: Annotated[bool, _about("Require a key; if off, everybody is admin, and only loopback is served")] = True
    key_file: Annotated[
        str | None, _about("File of the first admin key; default: beside the store's file, or tampu-admin.key")
    ] = None
    durability: Annotated[str | None, _about("A durability weaker than full, if the engine has one")] = None
    journal_retention: Annotated[float, _about("Seconds to keep the journal", gt=0)] = 7 * 86_400
    maintenance: Annotated[bool, _about("Run delays, lease expiry and retention; at least one node must do so")] = True
    log_format: Annotated[Literal["auto", "json", "pretty"], _about("auto: pretty on a terminal, else json")] = "auto"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], _about("The lowest level that is logged")] = (
        "info"
    )
    access_log: Annotated[
        bool, _about("One log line per request and worker stream, with its queue and message ids")
    ] = False
    max_body: Annotated[int, _about("Maximum bytes of a request's body", ge=1024)] = 32 << 20
    max_frame: Annotated[int, _about("Maximum bytes of a message in a worker's stream", ge=1024)] = 1 << 20
    max_headers: Annotated[int, _about("Maximum bytes of a request's headers, or of its trailers", ge=1024)] = 32 << 10
    max_batch: Annotated[int, _about("Maximum messages, settlements or ids in a request", ge=1, le=10_000)] = 10_000
    max_wait: Annotated[float, _about("Maximum seconds of a long poll", ge=0, le=3600)] = 60
    max_connections: Annotated[int, _about("Maximum open connections; more are answered 503", ge=1)] = 10_000
    max_body_bytes: Annotated[int, _about("Maximum bytes of all bodies at work; more are answered 503", ge=1)] = (
        256 << 20
    )
    max_polls: Annotated[int, _about("Maximum claims and results that wait; more are answered 503", ge=1)] = 5_000
    max_streams: Annotated[int, _about("Maximum worker streams; more are answered 503", ge=1)] = 2_000
    max_feeds: Annotated[int, _about("Maximum event feeds; more are answered 503", ge=1)] = 1_000
    max_listings: Annotated[int, _about("Maximum long reads that run or wait; more are answered 503", ge=1)] = 200
    read_timeout: Annotated[
        float, _about("Seconds for a request to arrive completely, and for a slow client to read its answer", gt=0)
    ] = 20
    idle_timeout: Annotated[float, _about("Seconds that a connection is kept between requests", gt=0)] = 75
    stop_timeout: Annotated[float, _about("Seconds for open requests to finish when the server stops", ge=0)] = 20
    key_rate: Annotated[float, _about("Messages a second of each key, over all nodes; 0: no limit", ge=0)] = 0
    key_burst: Annotated[int, _about("Messages at once after a quiet time; 0: one second's worth", ge=0)] = 0
    tenant_rate: Annotated[float, _about("Messages a second of each tenant, over all nodes; 0: no limit", ge=0)] = 0
    tenant_burst: Annotated[int, _about("Messages at once after a quiet time; 0: one second's worth", ge=0)] = 0
    login_attempts: Annotated[int, _about("Bad keys a minute from one address; more are answered 429", ge=1)] = 20
    oidc_issuer: Annotated[str | None, _about("Also accept bearer tokens (JWT) of this issuer")] = None
    oidc_audience: Annotated[str | None, _about("The audience (aud) a token must have; required with oidc_issuer")] = (
        None
    )
    oidc_jwks_url: Annotated[str | None, _about("Where the issuer's keys are; default: found through the issuer")] = (
        None
    )
    oidc_claim: Annotated[str, _about("The token claim with tenant and grants")] = "tampu"
    lake: Annotated[str | None, _about("The lake that the console and /mcp show; default: beside the store's file")] = (
        None
    )
    public_metrics: Annotated[bool, _about("Serve /metrics without a key, even on a public address")] = False

    sqs: Annotated[bool, _about("Serve the protocol of Amazon SQS at /sqs; see docs/how-to/sqs.md")] = False
    private_webhooks: Annotated[
        bool, _about("Let webhooks go to private, loopback and link-local addresses; off, users cannot reach them")
    ] = False

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


DURATIONS = frozenset(("journal_retention", "max_wait", "read_timeout", "idle_timeout", "stop_timeout"))
"""Settings that are durations: also taken as ``5m``."""


def load(file: Path | None = None, **flags: Any) -> ServerSettings:
    """Load the settings. Refuses invalid ones, and a public address without auth."""
    if file is not None and not file.is_file():
        raise InvalidConfig(f"there is no file {file}", field="config")
    given = _from_file(file or Path(DEFAULT_FILE))
    for name in ServerSettings.__struct_fields__:
        if f"TAMPU_{name.upper()}" in os.environ:
            given[name] = os.environ[f"TAMPU_{name.upper()}"]
    given |= {name: value for name, value in flags.items() if value is not None}
    for name in DURATIONS & given.keys():
        if isinstance(given[name], str):
            given[name] = seconds_of(given[name], name, InvalidConfig)
    try:
        made = convert(given, ServerSettings, strict=False)
    except msgspec.ValidationError as error:
        text, _, name = str(error).partition(" - at `$.")
        raise InvalidConfig(f"{name.rstrip('`')}: {text}", field=name.rstrip("`")) from None
    if not made.auth and not made.loopback:
        raise InvalidConfig(
            f"refusing to serve {made.host} with auth off", field="auth", hint="turn auth on, or listen on 127.0.0.1"
        )
    if made.oidc_issuer and not made.oidc_audience:
        raise InvalidConfig("oidc_issuer needs oidc_audience", field="oidc_audience")
    return made


def _from_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}", field="config") from None
    if isinstance(found.get("lake"), dict):
        del found["lake"]  # the section for the pipeline
    unknown = found.keys() - set(ServerSettings.__struct_fields__)
    if unknown:  # most likely misspelled
        raise InvalidConfig(f"{path}: unknown setting: {', '.join(sorted(unknown))}", field="config")
    return found
