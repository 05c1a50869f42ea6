"""What is stored of flows, as documents.

| kind | name | what | written by |
|---|---|---|---|
| `flow` | flow | its name, queues, and whether it was cancelled | who publishes or cancels it |
| `flow_part` | part | the graph of a part; it never changes | who publishes the part |
| `flow_link` | flow/member/part | that a member has added this part while it ran | who adds it |
| `flow_state` | part/n | a letter for each of 256 members | the follower |
| `flow_wait` | part/n | for each of 64 sets of parents, how many have not ended, have failed … | the follower |
| `flow_extra` | part/set/part | parents that were added to a set later | the follower |
| `flow_count` | flow | how many members have each letter | the follower |

So the end of a member rewrites some hundred bytes, however many members there are. Members that wait for the same
parents share one set: a thousand that wait for a thousand are two thousand entries, not a million.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from tampu.broker.policies.flows.ids import number_of, part_of
from tampu.model.decoders import from_json
from tampu.model.flows import OnFailure
from tampu.model.states import State

FLOW, PART, LINK = "flow", "flow_part", "flow_link"
STATE, WAIT, EXTRA, COUNT = "flow_state", "flow_wait", "flow_extra", "flow_count"
KINDS = (FLOW, PART, LINK, STATE, WAIT, EXTRA, COUNT)
FOLLOWER = "flows"
"""The follower's name."""
CHUNK = 256
SETS = 64

OPEN, DONE, DEAD, BLOCKED, SKIPPED = ".", "d", "x", "b", "s"
CANCELLED, EXPIRED, REMOVED, DROPPED = "c", "e", "p", "k"
"""Letters of members. Blocked: held until a dead parent is replayed. Skipped: cancelled, as its policy says. Dropped:
cancelled, because a parent has ended that can never be done."""
WORDS = {
    OPEN: "open", DONE: "done", DEAD: "dead", BLOCKED: "blocked", SKIPPED: "skipped", CANCELLED: "cancelled",
    EXPIRED: "expired", REMOVED: "removed", DROPPED: "cancelled",
}  # fmt: skip
LETTER = {State.DONE: DONE, State.DEAD: DEAD, State.CANCELLED: CANCELLED, State.EXPIRED: EXPIRED}
COLUMN: dict[str, int] = {
    OPEN: 0, DEAD: 1, BLOCKED: 1, CANCELLED: 2, EXPIRED: 2, REMOVED: 2, DROPPED: 2, SKIPPED: 3,
}  # fmt: skip
"""Where a set counts a parent with this letter; done ones are not counted."""
FAILURES = frozenset((DEAD, CANCELLED, EXPIRED, REMOVED, DROPPED))
"""Letters that are a failure of the flow, if nobody waits for the member."""


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    created_us: int
    actor: str
    correlation_id: str
    size: int
    """Members of its first part."""
    queues: list[str]
    cancelled_us: int = 0


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Members with consecutive numbers."""

    first: int
    count: int
    part: str = ""
    """Empty: the part that says so."""


class WaitSet(msgspec.Struct, frozen=True, array_like=True):
    """Members that wait for the same parents."""

    parents: list[Run]
    waiters: list[Run]
    many: bool
    """Results are a list."""


Column = list[tuple[Any, int]]
"""Values of the members of a part in their order: (value, how many have it)."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """The graph of a part."""

    flow: str
    size: int
    queues: Column
    types: Column
    policies: Column
    intos: Column
    sets: list[WaitSet] = []
    adder: str | None = None
    """The member that has added it."""
    joins: bool = False
    """Who waits for the adder also waits for these."""


class Chunk(msgspec.Struct, omit_defaults=True):
    letters: str
    outs: dict[str, list[tuple[str, int]]] = {}
    """By number: sets of other parts with this member as a parent."""


class Counts(msgspec.Struct, omit_defaults=True):
    letters: dict[str, int] = {}
    bad: int = 0
    """Failures that make the flow fail."""
    ended_us: int = 0
    """When its last member ended; 0: some are open."""
    forgets: bool = False
    """There is a timer that removes what is stored of it."""


read_head = from_json(Head).decode
read_part = from_json(Part).decode
read_chunk = from_json(Chunk).decode
read_sets = from_json(list[list[int]]).decode
read_counts = from_json(Counts).decode
read_runs = from_json(list[Run]).decode
read_queues = from_json(list[str]).decode


class SetName(NamedTuple):
    part: str
    number: int
    """Its index in the part."""


class Graph:
    """A part that was read, with the ways from parents to those that wait."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.flow = part.flow
        self.size = part.size
        self.sets_of: dict[int, list[int]] = {}
        """By number of a parent: its sets in this part."""
        self.set_of: dict[int, int] = {}
        """By number of a waiter."""
        for index, waits in enumerate(part.sets):
            for number in numbers(run for run in waits.parents if not run.part):
                self.sets_of.setdefault(number, []).append(index)
            for number in numbers(waits.waiters):
                self.set_of[number] = index
        self._ends = {column: list(itertools.accumulate(n for _, n in self._column(column))) for column in _COLUMNS}

    def _column(self, name: str) -> Column:
        column: Column = getattr(self.part, name)
        return column

    def of(self, column: str, number: int) -> Any:
        """The value of a member in a column."""
        value, _ = self._column(column)[bisect.bisect_left(self._ends[column], number)]
        return value

    def policy(self, number: int) -> OnFailure:
        found: OnFailure = self.of("policies", number)
        return found


_COLUMNS = ("queues", "types", "policies", "intos")


def numbers(runs: Iterable[Run]) -> Iterator[int]:
    for run in runs:
        yield from range(run.first, run.first + run.count)


def runs_of(references: Iterable[tuple[str, int]]) -> list[Run]:
    """(part, number) of each, as runs in the same order."""
    made: list[Run] = []
    for part, number in references:
        if made and made[-1].part == part and made[-1].first + made[-1].count == number:
            made[-1] = Run(made[-1].first, made[-1].count + 1, part)
        else:
            made.append(Run(number, 1, part))
    return made


def column(values: Sequence[Any]) -> Column:
    return [(value, len(list(same))) for value, same in itertools.groupby(values)]


def chunk_name(part: str, number: int) -> tuple[str, int]:
    """The name of the document with the letter of a member, and the place in it."""
    at, place = divmod(number - 1, CHUNK)
    return f"{part}/{at:05d}", place


def sets_name(name: SetName) -> tuple[str, int]:
    at, place = divmod(name.number, SETS)
    return f"{name.part}/{at:05d}", place


def place_of(id: str) -> tuple[str, int]:
    """(part, number) of a member."""
    return part_of(id), number_of(id)


def verdict(counts: Sequence[int], policy: OnFailure, *, cancelled: bool) -> str:
    """What becomes of a member that waits, from the counts of its parents: `OPEN` (it runs), `BLOCKED`, `SKIPPED` or
    `DROPPED`. All its parents have ended or are blocked."""
    _, dead, gone, skipped = counts
    if cancelled:
        return DROPPED
    if not (dead or gone or skipped) or policy == "run":
        return OPEN
    if policy == "skip":
        return SKIPPED
    if dead:
        return BLOCKED
    return DROPPED if gone else SKIPPED


def status(head: Head, counts: Counts) -> str:
    if counts.letters.get(OPEN, 0):
        return "running"
    if head.cancelled_us:
        return "cancelled"
    return "failed" if counts.bad else "done"
