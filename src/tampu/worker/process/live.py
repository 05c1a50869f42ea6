"""The live view of workers in the terminal: tasks, outcomes, rate, and the counts of their queues.

A worker takes a `Snapshot` of itself every second. It is drawn, or sent through a pipe to the supervisor, which draws
all its workers as one.
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

from tampu.broker.admin.verbs import Stats
from tampu.model.decoders import from_json
from tampu.model.errors import TampuError
from tampu.worker.runner import Runner

_SECONDS = 1.0
_ENDS = ("ack", "nack", "reject", "release", "lost")
_STATES = ("ready", "delayed", "leased", "dead")


class QueueLine(msgspec.Struct, frozen=True):
    """A queue; ``counts`` is None if the store did not answer."""

    queue: str
    counts: tuple[int, int, int, int] | None = None
    oldest: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """A worker at one moment."""

    name: str
    state: str
    held: int
    done: int
    outcomes: dict[str, dict[str, int]]
    queues: list[QueueLine]
    running: dict[str, int] = {}
    """Leased messages, by task."""


_read = from_json(Snapshot).decode


def snapshot(runner: Runner) -> Snapshot:
    state = "stopping" if runner.stopping else "the store cannot be used" if runner.outages.down else "working"
    lines = [_line(runner, name) for name in runner.order.names]
    return Snapshot(runner.name, state, runner.held, runner.done, dict(runner.outcomes), lines, runner.held_by_task())


def _line(runner: Runner, queue: str) -> QueueLine:
    found: Stats | None = None
    with contextlib.suppress(TampuError):  # the headline says that the store cannot be used
        found = runner.app.store.stats(queue)
    if found is None:
        return QueueLine(queue)
    age = found.oldest_ready_age
    counts = (found.ready, found.delayed, found.leased, found.dead)
    return QueueLine(queue, counts, None if age is None else age.total_seconds())


class SnapshotReader:
    """Reads the snapshots that one worker sends to its supervisor."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def start(self, pipe: int) -> threading.Thread:
        """Read snapshots from a pipe, in a thread, until the pipe closes."""
        thread = threading.Thread(target=self._read, args=(pipe,), name="tampu-snapshots", daemon=True)
        thread.start()
        return thread

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb") as lines:
            for line in lines:
                with contextlib.suppress(msgspec.DecodeError):  # cut off, because the pipe was full
                    self.snapshot = _read(line)
        if self.snapshot is not None:
            self.snapshot = msgspec.structs.replace(self.snapshot, state="ended", held=0)


class View:
    """Draws the workers of one app as one."""

    def __init__(self) -> None:
        self._before: tuple[float, int] = (time.monotonic(), 0)

    def draw(self, snapshots: Sequence[Snapshot]) -> Group:
        heads = [Text(f"{one.name} · {one.state} · {one.held} held · {one.done} ended") for one in snapshots]
        lines = snapshots[0].queues if snapshots else []
        return Group(self._sum(snapshots), *(heads if len(heads) > 1 else ()), _tasks(snapshots), _queues(lines))

    def _sum(self, snapshots: Sequence[Snapshot]) -> Text:
        done = sum(one.done for one in snapshots)
        (at, before), now = self._before, time.monotonic()
        self._before = (now, done)
        rate = max(0, done - before) / max(now - at, 0.001)  # a replaced worker starts at 0
        held = sum(one.held for one in snapshots)
        who = f"{snapshots[0].name} · {snapshots[0].state}" if len(snapshots) == 1 else f"{len(snapshots)} workers"
        return Text(f"{who} · {held} held · {done} ended · {rate:,.0f}/s", "bold")


def _tasks(snapshots: Sequence[Snapshot]) -> Table:
    table = Table("task", "held", *(f"{name}ed" if name != "release" else "released" for name in _ENDS[:-1]), "lost")
    for name in sorted({name for one in snapshots for name in (*one.outcomes, *one.running)}):
        outcomes = [one.outcomes[name] for one in snapshots if name in one.outcomes]
        held = sum(one.running.get(name, 0) for one in snapshots)
        table.add_row(Text(name), f"{held:,}", *(f"{sum(counts[end] for counts in outcomes):,}" for end in _ENDS))
    return table


def _queues(lines: Sequence[QueueLine]) -> Table:
    table = Table("queue", *_STATES, "oldest")
    for line in lines:
        if line.counts is None:
            table.add_row(Text(line.queue), "?", "?", "?", "?", "?")
        else:
            shown = "" if line.oldest is None else f"{line.oldest:,.0f} s"
            table.add_row(Text(line.queue), *(f"{count:,}" for count in line.counts), shown)
    return table


@contextlib.contextmanager
def shown(
    snapshots: Callable[[], Sequence[Snapshot]], console: Console | None = None, after: threading.Event | None = None
) -> Iterator[None]:
    """Draw the snapshots every second, from a thread."""
    view = View()
    with (
        Live(console=console or Console(stderr=True), auto_refresh=False) as screen,
        _every_second(lambda: screen.update(view.draw(snapshots()), refresh=True), after),
    ):
        yield


@contextlib.contextmanager
def sent_to_supervisor(runner: Runner, pipe: int) -> Iterator[None]:
    """Send a snapshot to the supervisor every second."""
    os.set_blocking(pipe, False)
    os.set_inheritable(pipe, False)

    def send() -> None:
        with contextlib.suppress(OSError):  # it does not read, or has ended; the pulse notices that
            os.write(pipe, msgspec.json.encode(snapshot(runner)) + b"\n")

    with _every_second(send, runner.started):
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
            act()  # the final state

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
