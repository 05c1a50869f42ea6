"""A worker as a process: signals, health checks for orchestrators, and exit codes.

The first SIGTERM or SIGINT stops it gracefully, the second at once. It also stops when its supervisor has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tampu.import_string import import_string
from tampu.model.errors import InvalidConfig
from tampu.worker.app import App
from tampu.worker.logs.user_frames import user_frames
from tampu.worker.pools.child import resident
from tampu.worker.runner import Runner

log = logging.getLogger("tampu.worker")
PARENT = "TAMPU_SUPERVISOR"
"""Environment variable of a supervised worker: the process id of its supervisor."""
SNAPSHOTS = "TAMPU_SNAPSHOTS"
"""Environment variable of a supervised worker: the pipe for the snapshots of the live view."""
CLEAN, FORCED = 0, 1
_STUCK_SECONDS = 30.0
_AT_ONCE_SECONDS = 2.0
_CLOSING_SECONDS = 10.0


def load(text: str) -> App:
    """``package.module:name`` → the app; the default name is ``app``."""
    module, _, name = text.partition(":")
    try:
        found = import_string(text, "app")
    except Exception as error:  # the module is the user's: it may raise anything
        if isinstance(error, AttributeError) and module in sys.modules:
            apps = [name for name, value in vars(sys.modules[module]).items() if isinstance(value, App)]
            hint = f"tampu work {module}:{apps[0] if apps else 'app'}"
            raise InvalidConfig(f"{module} has no {name or 'app'}", field="app", hint=hint) from None
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (module == missing or module.startswith(f"{missing}.")):
            raise InvalidConfig(
                f"module {module} not found", field="app", hint="run it where Python can import it"
            ) from None
        log.error("%s cannot be imported\n%s", module, user_frames("".join(traceback.format_exception(error))))
        raise InvalidConfig(
            f"{module} cannot be imported: {type(error).__name__}: {error}",
            field="app",
            hint="correct the module; the log has the traceback",
        ) from None
    if not isinstance(found, App):
        raise InvalidConfig(f"{text} is not a tampu.App", field="app")
    return found


class HealthChecks(msgspec.Struct, frozen=True):
    """How an orchestrator sees that the worker lives: a file, a port, or both."""

    file: Path | None = None
    """Touched every two seconds while the event loop runs."""
    port: int | None = None
    host: str = "127.0.0.1"


class Limits(msgspec.Struct, frozen=True):
    """A worker that reaches a limit finishes its running tasks and ends. The supervisor starts another."""

    memory: int | None = None
    """Megabytes."""
    messages: int | None = None


def run(runner: Runner, checks: HealthChecks, limits: Limits | None = None) -> int:
    """Work until a signal or a limit. Returns the exit code."""
    asked = 0

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            log.warning("%s: stopped claiming, %d messages to finish", signal.Signals(number).name, runner.held)
            runner.stop()
        else:
            log.warning("%s again: ending at once", signal.Signals(number).name)
            runner.stop(now=True)
            _exit_within(_AT_ONCE_SECONDS, FORCED)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    runner.on_pulse = _pulse(runner, checks, limits or Limits())
    if checks.port is not None:
        threading.Thread(target=_serve_health, args=(runner, checks), name="tampu-health", daemon=True).start()
    left = runner.run()
    if left:
        log.error("%d messages could not be settled because the store did not answer", left)
    log.info("%s has ended", runner.name)
    return FORCED if asked > 1 or left else CLEAN


def close(app: App, code: int) -> None:
    """Close the store. The process exits with this code even if the store, or a thread of a task, hangs."""
    _exit_within(_CLOSING_SECONDS if code == CLEAN else _AT_ONCE_SECONDS, code)
    app.close()


def _exit_within(seconds: float, code: int) -> None:
    end = threading.Timer(seconds, os._exit, (code,))
    end.daemon = True
    end.start()


def _pulse(runner: Runner, checks: HealthChecks, limits: Limits) -> Any:
    supervisor = int(os.environ.get(PARENT, "0"))

    def pulse() -> None:
        if supervisor and os.getppid() != supervisor:
            log.warning("the supervisor has ended; stopping")
            runner.stop()
        if reached := _limit_reached(runner, limits):
            log.warning("%s: stopped claiming, %d messages to finish; another worker takes over", reached, runner.held)
            runner.stop()
        if checks.file is not None:
            checks.file.touch()

    return pulse


def live(runner: Runner) -> bool:
    """True if the event loop runs."""
    return time.monotonic() - runner.alive_at <= _STUCK_SECONDS


def ready(runner: Runner) -> bool:
    """True if the worker claims, and the store answers."""
    return live(runner) and runner.started.is_set() and not runner.outages.down and not runner.stopping


def _limit_reached(runner: Runner, limits: Limits) -> str | None:
    if limits.messages is not None and runner.done >= limits.messages:
        return f"limit reached, {runner.done} messages done"
    if limits.memory is not None and resident() > limits.memory << 20:
        return f"limit reached, {resident() >> 20} MB in use"
    return None


def _serve_health(runner: Runner, checks: HealthChecks) -> None:
    """Serve ``/live`` and ``/ready`` over HTTP, in a thread with its own loop, so that a busy worker answers too."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                asked = await reader.readline()
                while (await reader.readline()).strip():
                    continue
            good = (ready if b" /ready" in asked else live)(runner)
            word = b"yes" if good else b"no"
            head = b"HTTP/1.1 200 OK" if good else b"HTTP/1.1 503 Service Unavailable"
            writer.write(head + b"\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(word) + word)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # the client is gone, or its request is too long
        finally:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(one, checks.host, checks.port)
        async with server:
            await server.serve_forever()

    asyncio.run(serve())
