"""What can be set on a server: type, default, meaning. One table for the flags, the settings and the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class Option(NamedTuple):
    kind: type
    default: Any
    help: str
    limits: dict[str, Any] = {}  # noqa: RUF012 - never changed


OPTIONS: dict[str, Option] = {
    "url": Option(str, "tampu.db", "The store: a file, postgresql://…, redis://…"),
    "host": Option(str, "127.0.0.1", "The address to listen on"),
    "port": Option(int, 8400, "The port to listen on; 0 picks a free one", {"ge": 0, "le": 65535}),
    "auth": Option(bool, True, "Ask for a key; without, everybody is admin, on loopback only"),
    "key_file": Option(Path, None, "Where the first admin key is kept; beside the store's file, or tampu-admin.key"),
    "durability": Option(str, None, "Weaker than full, by its name, where the engine has it"),
    "journal_retention": Option(float, 7 * 86_400, "Seconds that the journal is kept", {"gt": 0}),
    "maintenance": Option(bool, True, "Look after delays, leases and retention; leave it on for at least one node"),
    "log_format": Option(str, "auto", "auto is pretty on a terminal"),
    "log_level": Option(str, "info", "The least level that is logged"),
    "access_log": Option(bool, False, "One log line for each request, with its queue and message ids"),
    "max_body": Option(int, 32 << 20, "Bytes of a request's body", {"ge": 1024}),
    "max_headers": Option(int, 32 << 10, "Bytes of a request's headers, or of its trailers", {"ge": 1024}),
    "max_batch": Option(int, 10_000, "Messages, settlements or ids in one request", {"ge": 1, "le": 10_000}),
    "max_wait": Option(float, 60, "Seconds that a long poll may last", {"ge": 0, "le": 3600}),
    "max_connections": Option(int, 10_000, "Connections at once; more are answered 503", {"ge": 1}),
    "read_timeout": Option(
        float, 20, "Seconds within which a request has to arrive whole, and who does not read has to go on", {"gt": 0}
    ),
    "idle_timeout": Option(float, 75, "Seconds that a connection is kept between requests", {"gt": 0}),
    "stop_timeout": Option(float, 20, "Seconds that requests under way get when the server stops", {"ge": 0}),
    "key_rate": Option(float, 0, "Messages a second that each key may move, over all nodes; 0: no limit", {"ge": 0}),
    "key_burst": Option(int, 0, "Messages at once after a quiet time; 0: one second's worth", {"ge": 0}),
    "tenant_rate": Option(float, 0, "Messages a second for each tenant, over all nodes; 0: no limit", {"ge": 0}),
    "tenant_burst": Option(int, 0, "Messages at once after a quiet time; 0: one second's worth", {"ge": 0}),
    "login_attempts": Option(int, 20, "Bad keys a minute from one address; more are answered 429", {"ge": 1}),
    "oidc_issuer": Option(str, None, "Take bearer tokens (JWT) of this issuer as well as keys"),
    "oidc_audience": Option(str, None, "What a token's aud must hold; needed with oidc_issuer"),
    "oidc_jwks_url": Option(str, None, "Where the issuer's keys are; else asked of the issuer"),
    "oidc_claim": Option(str, "tampu", "The claim with tenant and grants"),
    "public_metrics": Option(bool, False, "Answer /metrics without a key, also away from loopback"),
}
