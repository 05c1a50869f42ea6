"""The options of the server: type, default, help. One table for flags, settings and the reference page."""

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
    "auth": Option(bool, True, "Require a key; if off, everybody is admin, and only loopback is served"),
    "key_file": Option(Path, None, "File of the first admin key; default: beside the store's file, or tampu-admin.key"),
    "durability": Option(str, None, "A durability weaker than full, if the engine has one"),
    "journal_retention": Option(float, 7 * 86_400, "Seconds to keep the journal", {"gt": 0}),
    "maintenance": Option(bool, True, "Run delays, lease expiry and retention; at least one node must do so"),
    "log_format": Option(str, "auto", "auto: pretty on a terminal, else json"),
    "log_level": Option(str, "info", "The lowest level that is logged"),
    "access_log": Option(bool, False, "One log line per request and worker stream, with its queue and message ids"),
    "max_body": Option(int, 32 << 20, "Maximum bytes of a request's body", {"ge": 1024}),
    "max_frame": Option(int, 1 << 20, "Maximum bytes of a message in a worker's stream", {"ge": 1024}),
    "max_headers": Option(int, 32 << 10, "Maximum bytes of a request's headers, or of its trailers", {"ge": 1024}),
    "max_batch": Option(int, 10_000, "Maximum messages, settlements or ids in a request", {"ge": 1, "le": 10_000}),
    "max_wait": Option(float, 60, "Maximum seconds of a long poll", {"ge": 0, "le": 3600}),
    "max_connections": Option(int, 10_000, "Maximum open connections; more are answered 503", {"ge": 1}),
    "max_body_bytes": Option(int, 256 << 20, "Maximum bytes of all bodies at work; more are answered 503", {"ge": 1}),
    "max_polls": Option(int, 5_000, "Maximum claims and results that wait; more are answered 503", {"ge": 1}),
    "max_streams": Option(int, 2_000, "Maximum worker streams; more are answered 503", {"ge": 1}),
    "max_feeds": Option(int, 1_000, "Maximum event feeds; more are answered 503", {"ge": 1}),
    "max_listings": Option(int, 200, "Maximum long reads that run or wait; more are answered 503", {"ge": 1}),
    "read_timeout": Option(
        float, 20, "Seconds for a request to arrive completely, and for a slow client to read its answer", {"gt": 0}
    ),
    "idle_timeout": Option(float, 75, "Seconds that a connection is kept between requests", {"gt": 0}),
    "stop_timeout": Option(float, 20, "Seconds for open requests to finish when the server stops", {"ge": 0}),
    "key_rate": Option(float, 0, "Messages a second of each key, over all nodes; 0: no limit", {"ge": 0}),
    "key_burst": Option(int, 0, "Messages at once after a quiet time; 0: one second's worth", {"ge": 0}),
    "tenant_rate": Option(float, 0, "Messages a second of each tenant, over all nodes; 0: no limit", {"ge": 0}),
    "tenant_burst": Option(int, 0, "Messages at once after a quiet time; 0: one second's worth", {"ge": 0}),
    "login_attempts": Option(int, 20, "Bad keys a minute from one address; more are answered 429", {"ge": 1}),
    "oidc_issuer": Option(str, None, "Also accept bearer tokens (JWT) of this issuer"),
    "oidc_audience": Option(str, None, "The audience (aud) a token must have; required with oidc_issuer"),
    "oidc_jwks_url": Option(str, None, "Where the issuer's keys are; default: found through the issuer"),
    "oidc_claim": Option(str, "tampu", "The token claim with tenant and grants"),
    "public_metrics": Option(bool, False, "Serve /metrics without a key, even on a public address"),
}
