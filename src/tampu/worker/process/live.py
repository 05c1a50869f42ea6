"""What workers do, in the terminal: tasks, how they ended, how fast; queues, and what waits there.

A worker makes a `Picture` of itself every second. It is drawn at once, or told to the supervisor through a pipe, which
draws those of all its workers as one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tampu.broker.admin import Stats
from tampu.model.decoders import from_json
from tampu.model.errors import TampuError
from tampu.worker.runner import Runner

_SECONDS = 1.0
_ENDS = ("ack", "nack", "reject", "release", "lost")
_STATES = ("ready", "delayed", "leased", "dead")


class Line(msgspec.Struct, frozen=True):
    """A queue; counts are None when the store did not answer."""

    queue: str
    counts: tuple[int, int, int, int] | None = None
    oldest: float | None = None


class Picture(msgspec.Struct, frozen=True):
    """A worker at one moment."""

    name: str
    state: str
    held: int
    done: int
    tallies: dict[str, dict[str, int]]
    queues: list[Line]


_read = from_json(Picture).decode


def picture(runner: Runner) -> Picture:
    state = "stopping" if runner.stopping else "the store can not be used" if runner.outages.down else "working"
    lines = [_line(runner, name) for name in runner.order.names]
    return Picture(runner.name, state, runner.held, runner.done, dict(runner.tallies), lines)


def _line(runner: Runner, queue: str) -> Line:
    found: Stats | None = None
    with contextlib.suppress(TampuError):  # the head says when the store is gone
        found = runner.app.store.stats(queue)
    if found is None:
        return Line(queue)
    age = found.oldest_ready_age
    counts = (found.ready, found.delayed, found.leased, found.dead)
    return Line(queue, counts, None if age is None else age.total_seconds())


class Frame:
    """What a supervisor knows of the worker at one of its seats."""

    def __init__(self) -> None:
        self.picture: Picture | None = None

    def hang(self, pipe: int) -> threading.Thread:
        """Take the pictures that come through a pipe, from a thread, until it ends."""
        thread = threading.Thread(target=self._read, args=(pipe,), name="tampu-pictures", daemon=True)
        thread.start()
        return thread

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb") as lines:
            for line in lines:
                with contextlib.suppress(msgspec.DecodeError):  # there was no room for all of it
                    self.picture = _read(line)
        if self.picture is not None:
            self.picture = msgspec.structs.replace(self.picture, state="ended", held=0)


class View:
    """Pictures of workers of one app, as one."""

    def __init__(self) -> None:
        self._before: tuple[float, int] = (time.monotonic(), 0)

    def draw(self, pictures: Sequence[Picture]) -> Group:
        heads = [Text(f"{one.name} · {one.state} · {one.held} held · {one.done} ended") for one in pictures]
        lines = pictures[0].queues if pictures else []
        return Group(self._sum(pictures), *(heads if len(heads) > 1 else ()), _tasks(pictures), _queues(lines))

    def _sum(self, pictures: Sequence[Picture]) -> Text:
        done = sum(one.done for one in pictures)
        (at, before), now = self._before, time.monotonic()
        self._before = (now, done)
        rate = max(0, done - before) / max(now - at, 0.001)  # a worker that was replaced counts anew
        held = sum(one.held for one in pictures)
        who = f"{pictures[0].name} · {pictures[0].state}" if len(pictures) == 1 else f"{len(pictures)} workers"
        return Text(f"{who} · {held} held · {done} ended · {rate:,.0f}/s", "bold")


def _tasks(pictures: Sequence[Picture]) -> Table:
    table = Table("task", *(f"{name}ed" if name != "release" else "given back" for name in _ENDS[:-1]), "lost")
    for name in sorted({name for one in pictures for name in one.tallies}):
        tallies = [one.tallies[name] for one in pictures if name in one.tallies]
        table.add_row(name, *(f"{sum(tally[end] for tally in tallies):,}" for end in _ENDS))
    return table


def _queues(lines: Sequence[Line]) -> Table:
    table = Table("queue", *_STATES, "oldest")
    for line in lines:
        if line.counts is None:
            table.add_row(line.queue, "?", "?", "?", "?", "?")
        else:
            shown = "" if line.oldest is None else f"{line.oldest:,.0f} s"
            table.add_row(line.queue, *(f"{count:,}" for count in line.counts), shown)
    return table


@contextlib.contextmanager
def shown(
    pictures: Callable[[], Sequence[Picture]], console: Console | None = None, after: threading.Event | None = None
) -> Iterator[None]:
    """Draw them every second, from a thread."""
    view = View()
    with (
        Live(console=console or Console(stderr=True), auto_refresh=False) as screen,
        _every_second(lambda: screen.update(view.draw(pictures()), refresh=True), after),
    ):
        yield


@contextlib.contextmanager
def told(runner: Runner, pipe: int) -> Iterator[None]:
    """Tell the supervisor every second."""
    os.set_blocking(pipe, False)
    os.set_inheritable(pipe, False)

    def tell() -> None:
        with contextlib.suppress(OSError):  # it does not read, or is gone, which is noticed elsewhere
            os.write(pipe, msgspec.json.encode(picture(runner)) + b"\n")

    with _every_second(tell, runner.started):
        yield


@contextlib.contextmanager
def _every_second(act: Callable[[], None], after: threading.Event | None = None) -> Iterator[None]:
    end = threading.Event()
    whole = False

    def go() -> None:
        if after is not None:
            after.wait()
        while not end.wait(_SECONDS):
            act()
        if whole:
            act()  # how it ended

    thread = threading.Thread(target=go, name="tampu-live", daemon=True)
    thread.start()
    try:
        yield
        whole = True
    finally:
        end.set()
        if after is not None:
            after.set()
        thread.join()
