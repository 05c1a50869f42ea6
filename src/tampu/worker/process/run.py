"""A worker as a process: signals, signs of life for orchestrators, and how it ends.

The first SIGTERM or SIGINT stops it gracefully, the second at once. It also stops when its supervisor is gone.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tampu.model.errors import InvalidConfig
from tampu.worker.app import App
from tampu.worker.pools.child import resident
from tampu.worker.runner import Runner

log = logging.getLogger("tampu.worker")
PARENT = "TAMPU_SUPERVISOR"
"""In the environment of a supervised worker: the process it must not outlive."""
PICTURES = "TAMPU_PICTURES"
"""In the environment of a supervised worker: the number of the pipe that its supervisor sees it through."""
CLEAN, FORCED = 0, 1
_STUCK_SECONDS = 30.0
_AT_ONCE_SECONDS = 2.0
_CLOSING_SECONDS = 10.0


def load(text: str) -> App:
    """``package.module:app`` → the app; ``app`` if no name is given."""
    module, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in (name or "app").split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise InvalidConfig(f"no module {module} here", field="app", hint="run it where import finds it") from None
        raise
    except AttributeError:
        raise InvalidConfig(f"{module} has no {name or 'app'}", field="app", hint="tampu work module:app") from None
    if not isinstance(found, App):
        raise InvalidConfig(f"{text} is not a tampu.App", field="app")
    return found


class Signs(msgspec.Struct, frozen=True):
    """Where signs of life go."""

    file: Path | None = None
    """Touched every two seconds while the loop moves."""
    port: int | None = None
    host: str = "127.0.0.1"


class Ceiling(msgspec.Struct, frozen=True):
    """Beyond it a worker finishes what it runs and ends, for its supervisor to start another."""

    memory: int | None = None
    """Megabytes."""
    messages: int | None = None


def run(runner: Runner, signs: Signs, ceiling: Ceiling | None = None) -> int:
    """Work until a signal, or up to the ceiling; the exit code."""
    asked = 0

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            log.warning("%s: no more claims, %d messages to finish", signal.Signals(number).name, runner.held)
            runner.stop()
        else:
            log.warning("%s again: ending at once", signal.Signals(number).name)
            runner.stop(now=True)
            _exit_within(_AT_ONCE_SECONDS, FORCED)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    runner.on_pulse = _pulse(runner, signs, ceiling or Ceiling())
    if signs.port is not None:
        threading.Thread(target=_answer, args=(runner, signs), name="tampu-signs", daemon=True).start()
    left = runner.run()
    if left:
        log.error("%d messages could not be settled, because the store did not answer", left)
    log.info("%s has ended", runner.name)
    return FORCED if asked > 1 or left else CLEAN


def close(app: App, code: int) -> None:
    """Close the store, in a process that ends with this exit code even if the store or a thread of a task does not."""
    _exit_within(_CLOSING_SECONDS if code == CLEAN else _AT_ONCE_SECONDS, code)
    app.close()


def _exit_within(seconds: float, code: int) -> None:
    end = threading.Timer(seconds, os._exit, (code,))
    end.daemon = True
    end.start()


def _pulse(runner: Runner, signs: Signs, ceiling: Ceiling) -> Any:
    supervisor = int(os.environ.get(PARENT, "0"))

    def pulse() -> None:
        if supervisor and os.getppid() != supervisor:
            log.warning("the supervisor is gone")
            runner.stop()
        if beyond := _beyond(runner, ceiling):
            log.warning("%s: no more claims, %d messages to finish; another worker takes over", beyond, runner.held)
            runner.stop()
        if signs.file is not None:
            signs.file.touch()

    return pulse


def live(runner: Runner) -> bool:
    """The loop moves."""
    return time.monotonic() - runner.alive_at <= _STUCK_SECONDS


def ready(runner: Runner) -> bool:
    """It claims, and the store answers."""
    return live(runner) and runner.started.is_set() and not runner.outages.down and not runner.stopping


def _beyond(runner: Runner, ceiling: Ceiling) -> str | None:
    if ceiling.messages is not None and runner.done >= ceiling.messages:
        return f"{runner.done} messages are done"
    if ceiling.memory is not None and resident() > ceiling.memory << 20:
        return f"{resident() >> 20} MB are in use"
    return None


def _answer(runner: Runner, signs: Signs) -> None:
    """``/live`` and ``/ready`` over HTTP, from a thread with a loop of its own: a busy worker answers too."""

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
            return  # whoever asked is gone, or asked too much
        finally:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(one, signs.host, signs.port)
        async with server:
            await server.serve_forever()

    asyncio.run(serve())
