"""Parses a Redis url: which server, how to connect, which prefix of keys."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

import msgspec

from tampu.model.errors import InvalidConfig

SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
_TEXTS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_keyfile_password")
_KNOWN = ("prefix", "durability", "cluster", "timeout", "ssl_check_hostname", "sentinel_password", *_TEXTS)
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}\Z")
_TRUE = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
HINT = "redis://host:6379/0, rediss://…, redis+cluster://host:7000, redis+sentinel://host:26379,host2:26379/name/0"


class ServerUrl(msgspec.Struct, frozen=True):
    hosts: tuple[tuple[str, int], ...]
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    tls_options: dict[str, Any] = {}
    cluster: bool = False
    service: str | None = None
    """Name of the master in Sentinel."""
    sentinel_password: str | None = None
    prefix: str = "tampu"
    durability: str | None = None
    timeout: float = 30.0

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.hosts)


def parse(url: str) -> ServerUrl:
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise InvalidConfig(
            f"no engine for {scheme}://", field="url", hint=f"known: {', '.join(f'{known}://' for known in SCHEMES)}"
        )
    rest, _, query = rest.partition("?")
    options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in options if name not in _KNOWN]
    if unknown:
        raise InvalidConfig(
            f"unknown option in the url: {', '.join(unknown)}", field="url", hint=f"known: {', '.join(_KNOWN)}"
        )
    address, _, path = rest.partition("/")
    credentials, _, addresses = address.rpartition("@")
    username, _, password = credentials.partition(":")
    cluster = scheme.endswith("+cluster") or _flag(options, "cluster", default=False)
    sentinel = scheme.endswith("+sentinel")
    parts = [urllib.parse.unquote(part) for part in path.split("/") if part]
    service = parts.pop(0) if sentinel and parts else None
    if sentinel and service is None:
        raise InvalidConfig("the url does not name the master", field="url", hint=HINT)
    if len(parts) > 1 or (parts and not parts[0].isdecimal()) or (cluster and parts not in ([], ["0"])):
        raise InvalidConfig(f"not the number of a database: /{path}", field="url", hint=HINT)
    if (cluster and sentinel) or (not (cluster or sentinel) and "," in addresses):
        raise InvalidConfig("several hosts need redis+cluster:// or redis+sentinel://", field="url", hint=HINT)
    tls = scheme.startswith("rediss")
    prefix = options.get("prefix", "tampu")
    if not _PREFIX.match(prefix):
        raise InvalidConfig(f"{prefix!r:.80} is not a valid prefix", field="url", hint="1 to 64 of A-Z a-z 0-9 _ . -")
    return ServerUrl(
        hosts=tuple(_host(text, 26379 if sentinel else 6379) for text in addresses.split(",")),
        db=int(parts[0]) if parts else 0,
        username=urllib.parse.unquote(username) or None,
        password=urllib.parse.unquote(password) or None,
        tls=tls,
        tls_options=_tls(options) if tls else {},
        cluster=cluster,
        service=service,
        sentinel_password=options.get("sentinel_password"),
        prefix=prefix,
        durability=options.get("durability"),
        timeout=_seconds(options.get("timeout", "30")),
    )


def _host(text: str, port: int) -> tuple[str, int]:
    try:
        parsed = urllib.parse.urlsplit(f"//{text}")
        return parsed.hostname or "localhost", parsed.port or port
    except ValueError:
        raise InvalidConfig(f"{text!r:.80} is not a host and port", field="url", hint=HINT) from None


def _flag(options: dict[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name)
    if value is None:
        return default
    if value.lower() not in _TRUE:
        raise InvalidConfig(f"{name} must be true or false", field="url")
    return _TRUE[value.lower()]


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise InvalidConfig("timeout must be a number of seconds, at most 3600", field="url")
    return value


def _tls(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: options[name] for name in _TEXTS if name in options}
    found["ssl_check_hostname"] = _flag(options, "ssl_check_hostname", default=found.get("ssl_cert_reqs") != "none")
    return found
