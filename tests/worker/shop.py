"""The app of the workers that tests start as processes. What it does it notes in files of the folder it is given."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import tampu

app = tampu.App(os.environ.get("TAMPU_URL", "memory://"))
FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))


def note(what: str) -> None:
    """A line in the file of effects; a write this short is whole or not there."""
    work = tampu.current()
    with (FOLDER / "effects").open("a") as effects:
        effects.write(f"{what} {work.id} {os.getpid()} {work.attempt}\n")


def gate() -> bool:
    return (FOLDER / "gate").exists()


_watching: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}


async def _opened() -> None:
    """One looks for all that wait in this loop: a thousand who look would have nothing left for their work."""
    loop = asyncio.get_running_loop()
    if loop not in _watching or _watching[loop].done():
        _watching.clear()
        _watching[loop] = loop.create_task(_watch())
    await asyncio.shield(_watching[loop])


async def _watch() -> None:
    while not gate():
        await asyncio.sleep(0.05)


@app.task
async def wait_async(n: int) -> int:
    note("begun")
    await _opened()
    note("ended")
    return n


@app.task
def wait_thread(n: int) -> int:
    note("begun")
    while not gate():
        threading.Event().wait(0.02)
    note("ended")
    return n


@app.task
def takes(seconds: float) -> int:
    note("begun")
    threading.Event().wait(seconds)
    note("ended")
    return os.getpid()


@app.task(execution="process")
def wait_process(n: int) -> int:
    note("begun")
    tampu.current().log.info("waits", n=n)
    while not gate():
        time.sleep(0.02)  # noqa: TID251 - another process opens the gate
    note("ended")
    return n


@app.task(timeout=60)
async def through_jumps(seconds: float) -> int:
    """The clock of this process goes on by an hour, and later back by two."""
    note("begun")
    real, real_ns = time.time, time.time_ns
    for hours, stay in ((1, seconds), (-1, 0.5)):
        time.time = lambda ahead=3600 * hours: real() + ahead  # type: ignore[misc]  # as if it was set
        time.time_ns = lambda ahead=3600 * hours: real_ns() + ahead * 10**9  # type: ignore[misc]
        await asyncio.sleep(stay)
    note("ended")
    return os.getpid()


@app.task
def hold_interpreter(seconds: float) -> int:
    """Nothing else of this process runs meanwhile: PyDLL calls C without letting go of the interpreter."""
    note("begun")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    note("ended")
    return os.getpid()


@app.task(execution="process", backoff=[0])
def grow(megabytes: int) -> int:
    """Takes memory and keeps it at its first attempt, until somebody ends it."""
    kept = b"x" * (megabytes << 20)
    note("grown")
    while tampu.current().attempt == 1 and kept:
        time.sleep(0.02)  # noqa: TID251 - the test kills it
    return os.getpid()


@app.task(execution="process", max_attempts=1)
def allocate(megabytes: int) -> int:
    return len(bytearray(megabytes << 20))


@app.task(execution="process")
def who() -> int:
    return os.getpid()


@app.task(execution="process", timeout=60)
def look_around() -> list[float | None]:
    """What a child can do about its message, and that it has the store of its worker."""
    work = tampu.current()
    work.extend(600)
    who.publish()
    return [work.attempt, work.seconds_left]


@app.task(execution="process", timeout=0.3, max_attempts=1)
def never_ends() -> None:
    while True:
        pass


@app.task(execution="process", backoff=[0])
def resume(rows: int) -> list[int]:
    work = tampu.current()
    began = work.checkpoint.get(0)
    for row in range(began, rows):
        work.checkpoint.set(row + 1)
        work.progress((row + 1) / rows)
        if row == 2 and work.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return [began, rows]


@app.task(execution="process", retry_on=OSError)
def refuse_by_policy() -> None:
    raise ValueError("no such user")
