"""`open` and `open_async`: from a url to an open store, with its maintenance running."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import urllib.parse
from typing import Any

from tampu.broker.async_store import AsyncStore
from tampu.broker.core import Core
from tampu.broker.store import Store
from tampu.engines.port import Engine
from tampu.engines.sqlite import SqliteEngine
from tampu.maintenance.supervisor import Supervisor
from tampu.model.errors import InvalidConfig
from tampu.model.extras import install
from tampu.model.times import Clock, Duration, duration

log = logging.getLogger("tampu")
DEFAULT_URL = "tampu.db"
_WEEK = 7 * 86_400
_OTHER_SCHEMES = {"mysql": "mariadb", "mariadb": "mariadb", "postgresql": "postgresql", "postgres": "postgresql"}
"""Schemes that other libraries use for these servers, often with ``+driver``, → ours."""
_WEAKER = {
    "process": "the last moments before a loss of power may be lost",
    "everysec": "the last second before a loss of power may be lost",
    "none": "what was acknowledged may be gone after a crash of the server",
}


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    tenant: str = "default",
    durability: str | None = None,
    journal_retention: Duration = _WEEK,
    adopt: bool = False,
    maintenance: bool = True,
    clock: Clock | None = None,
    token: str | None = None,
    actor: str | None = None,
    private_webhooks: bool | None = None,
) -> Store:
    """Open a store by url: a file name, ``sqlite:///path``, ``memory://``, ``postgresql://…``,
    ``mariadb://…``, ``redis://…``, or a server's ``http://…``.

    Without a url it uses the environment's ``TAMPU_URL``, or ``tampu.db`` in this folder. A file is created if needed.
    ``durability="process"`` is faster, and may lose the last moments when power is lost. ``adopt`` keeps the queues in
    a SQLite file that has tables of your own. ``maintenance=False`` leaves delays, expired leases and retention to
    other processes (a claim always handles the first two). ``clock`` is for tests. ``token`` is the key for a server,
    by default ``TAMPU_TOKEN``; there, the tenant ``default`` means that of the key, and the server sets other options.
    ``actor`` is whom the audit trail names, by default the user of the operating system; a server names the key.
    ``private_webhooks`` lets webhooks go to private addresses, by default if ``TAMPU_PRIVATE_WEBHOOKS`` is ``true``.
    """
    if _text(url).startswith(("http://", "https://")):
        if (
            durability is not None
            or adopt
            or clock is not None
            or journal_retention != _WEEK
            or actor is not None
            or private_webhooks
        ):
            raise InvalidConfig("the server sets these options", field="url", hint="set them with tampu serve")
        return _remote(_text(url), token, tenant)
    if token is not None:
        raise InvalidConfig("only a server takes a token", field="token")
    journal_us = duration(journal_retention, "journal_retention", error=InvalidConfig)
    engine = make_engine(url, durability=durability, adopt=adopt, clock=clock)
    try:
        core = Core(engine)
    except BaseException:
        engine.close()
        raise
    if private_webhooks is None:
        private_webhooks = os.environ.get("TAMPU_PRIVATE_WEBHOOKS", "").lower() in ("1", "true")
    core.private_webhooks = private_webhooks
    if core.engine.durability in _WEAKER:
        log.warning("durability is %s: %s", core.engine.durability, _WEAKER[core.engine.durability])
    supervisor = None
    try:
        supervisor = Supervisor(core, journal_us) if maintenance else None
        return Store(core, tenant, on_close=_closing(core, supervisor), actor=actor)
    except BaseException:
        _closing(core, supervisor)()
        raise


def open_async(url: str | os.PathLike[str] | None = None, **options: Any) -> AsyncStore:
    """`open` for event loops: ``async with tampu.open_async("jobs.db") as store``."""
    return AsyncStore(lambda: open(url, **options))


def _closing(core: Core, supervisor: Supervisor | None) -> Any:
    lock = threading.Lock()

    def close() -> None:
        with lock:
            if core.closed:
                return
            core.closed = True
        core.waiting.wake_all()
        core.completion.close()
        if supervisor is not None:
            supervisor.stop()
        core.commit_queues.close()
        core.engine.close()

    return close


def make_engine(
    url: str | os.PathLike[str] | None,
    *,
    durability: str | None = None,
    adopt: bool = False,
    clock: Clock | None = None,
) -> Engine:
    """Open the engine for a url."""
    text = _text(url)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return SqliteEngine(text, clock=clock, durability=durability or "full", adopt=adopt)
    if scheme in ("postgresql", "postgres"):
        return _on_server("postgres", "PostgresEngine", text, durability, clock)
    if scheme == "mariadb":
        return _on_server("mariadb", "MariaEngine", text, durability, clock)
    if scheme.partition("+")[0] in ("redis", "rediss"):
        return _on_server("redis", "RedisEngine", text, durability, clock)
    if scheme not in ("memory", "sqlite"):
        raise InvalidConfig(f"no engine for {scheme}://", field="url", hint=_instead(scheme))
    path, _, query = rest.partition("?")
    options = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    durability = options.pop("durability", durability)
    if options:
        raise InvalidConfig(f"no such option in the url: {', '.join(options)}", field="url", hint="known: durability")
    if scheme == "memory":
        return SqliteEngine(clock=clock)
    # As in SQLAlchemy: three slashes are a relative path, four an absolute one.
    if not path.startswith("/") or len(path) < 2:
        raise InvalidConfig(f"no path in {text}", field="url", hint="sqlite:///jobs.db, or sqlite:////abs/jobs.db")
    name = urllib.parse.unquote(path[1:])
    return SqliteEngine(name, clock=clock, durability=durability or "full", adopt=adopt)


def _instead(scheme: str) -> str:
    """A hint for an unknown scheme."""
    kind, plus, more = scheme.lower().partition("+")
    if kind.startswith("valkey"):
        return f"write {kind.replace('valkey', 'redis')}{plus}{more}://"
    if kind in _OTHER_SCHEMES:
        return f"write {_OTHER_SCHEMES[kind]}://"
    return "this version opens files, sqlite:///path, memory://, postgresql://, mariadb://, redis:// and http://"


def _text(url: Any) -> str:
    text = os.environ.get("TAMPU_URL") or DEFAULT_URL if url is None else url
    if isinstance(text, os.PathLike):
        text = os.fspath(text)
    if not isinstance(text, str) or not text or "\x00" in text:
        raise InvalidConfig("the url must be a text", field="url", hint="for example jobs.db")
    return text


def _remote(url: str, token: str | None, tenant: str) -> Store:
    try:
        from tampu.client.remote import open_remote
    except ImportError as error:
        raise InvalidConfig(f"a server needs {error.name}", field="url", hint=install("client")) from error
    return open_remote(url, token=token or os.environ.get("TAMPU_TOKEN"), tenant=tenant)


def _on_server(name: str, engine: str, url: str, durability: str | None, clock: Clock | None) -> Engine:
    """An engine on a database server. It is imported here, because its driver is optional."""
    try:
        module = importlib.import_module(f"tampu.engines.{name}")
    except ImportError as error:
        raise InvalidConfig(f"{name} needs its driver", field="url", hint=install(name)) from error
    made: Engine = getattr(module, engine)(url, clock=clock, durability=durability)
    return made
