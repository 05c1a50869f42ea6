"""Checks the members of a part as they are passed in, and makes its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.policies.flows import ids, stored
from tampu.broker.policies.flows.stored import Part, Run, WaitSet
from tampu.model.errors import InvalidMessage
from tampu.model.flows import HOLD, HOLD_FOR_RESULTS, FlowMember
from tampu.model.message import NewMessage

MOST_MEMBERS = 20_000
"""Members that are published or added at once."""
_MOST_EDGES = 200_000
"""Runs of parents, over all different sets of them."""
_POLICIES = ("fail", "skip", "run")
_NOT_HERE = ("id", "key", "idempotency_key", "hold")


class Members:
    """The checked members of a part."""

    def __init__(self, members: Sequence[FlowMember], adder: str | None, *, joins: bool) -> None:
        self._members = members
        self._adder = adder
        self._joins = joins
        self._sets: dict[tuple[tuple[Run, ...], bool], list[int]] = {}
        self.foreign: dict[str, int] = {}
        """Other parts with parents: the highest number of one."""
        edges = 0
        for index, one in enumerate(members):
            parents = self._parents(index, one)
            if parents:
                many = len(parents) > 1 or parents[0].count > 1 if one.many is None else one.many
                waiters = self._sets.setdefault((parents, many), [])
                edges += 0 if waiters else len(parents)
                waiters.append(index + 1)
        if edges > _MOST_EDGES:
            raise InvalidMessage(
                f"a flow can have at most {_MOST_EDGES} ways between its members", field="members",
                hint="give members that wait for the same ones a common child",
            )  # fmt: skip
        self._waits = {number for waiters in self._sets.values() for number in waiters}
        for index, one in enumerate(members):
            _check(index, one, waits=index + 1 in self._waits)

    def _parents(self, index: int, one: FlowMember) -> tuple[Run, ...]:
        if not isinstance(one, FlowMember) or not isinstance(one.message, NewMessage):
            raise InvalidMessage("members must be FlowMember", field=f"members[{index}]")
        if isinstance(one.after, str | bytes) or not isinstance(one.after, Sequence):
            raise _bad(index, "after", "must be a list")
        runs: list[Run] = []
        for parent in one.after:
            first, count, part = parent, 1, ""
            if isinstance(parent, str):
                id = validate.id_text(parent)
                if self._adder is None or not ids.is_member(id):
                    raise _bad(index, "after", f"{parent:.60} is not a member of this flow")
                part, first = ids.part_of(id), ids.number_of(id) - 1
                self.foreign[part] = max(first + 1, self.foreign.get(part, 0))
            elif isinstance(parent, Sequence) and len(parent) == 2:
                first, count = parent
            if type(first) is not int or type(count) is not int or first < 0 or count < 1:
                raise _bad(index, "after", "has indexes, runs of them [first, count], and ids")
            if not part and first + count > index:
                raise _bad(index, "after", f"names {first + count - 1}, but members come after those they wait for")
            last = runs[-1] if runs else None
            if last is not None and last.part == part and last.first + last.count == first + 1:
                runs[-1] = Run(last.first, last.count + count, part)
            else:
                runs.append(Run(first + 1, count, part))
        parents = tuple(runs)
        if (parents, True) in self._sets or (parents, False) in self._sets:
            return parents
        if sum(run.count for run in parents) != len({(run.part, n) for run in parents for n in stored.numbers([run])}):
            raise _bad(index, "after", "names a member twice")
        return parents

    @property
    def feeding(self) -> set[str]:
        """The queues of members whose results others get."""
        takes = {number for number, one in enumerate(self._members, 1) if one.into is not None}
        return {
            self._members[number - 1].queue
            for (parents, _), waiters in self._sets.items()
            if not takes.isdisjoint(waiters)
            for number in stored.numbers(run for run in parents if not run.part)
        }

    @property
    def queues(self) -> list[str]:
        return sorted({one.queue for one in self._members})

    def part(self, flow: str) -> Part:
        members = self._members
        return Part(
            flow,
            len(members),
            stored.column([one.queue for one in members]),
            stored.column([one.message.type or "message" for one in members]),
            stored.column([one.on_failure for one in members]),
            stored.column([one.into for one in members]),
            [
                WaitSet(list(parents), stored.runs_of(("", number) for number in waiters), many)
                for (parents, many), waiters in self._sets.items()
            ],
            self._adder,
            self._joins,
        )

    def messages(
        self, part: str, members: Sequence[FlowMember], story: str, cause: str | None = None
    ) -> dict[str, list[NewMessage]]:
        """The messages to publish, by queue."""
        made: dict[str, list[NewMessage]] = {}
        for number, one in enumerate(members, 1):
            more: dict[str, Any] = {"id": ids.member(part, number), "correlation_id": story}
            if number in self._waits:
                more["hold"] = HOLD if one.into is None else HOLD_FOR_RESULTS
            if cause is not None and one.message.causation_id is None:
                more["causation_id"] = cause
            made.setdefault(one.queue, []).append(msgspec.structs.replace(one.message, **more))
        return made


def checked(members: Sequence[FlowMember], *, adder: str | None = None, joins: bool = False) -> Members:
    """Raises `InvalidMessage` if there cannot be such members."""
    if isinstance(members, str | bytes) or not isinstance(members, Sequence) or not members:
        raise InvalidMessage("members must be a list, not empty", field="members")
    if len(members) > MOST_MEMBERS:
        raise InvalidMessage(
            f"{len(members)} members; {MOST_MEMBERS} is the most at once", field="members",
            hint="let a task of the flow add the others: tampu.current().flow.add",
        )  # fmt: skip
    return Members(members, adder, joins=joins)


def _check(index: int, one: FlowMember, *, waits: bool) -> None:
    for field in _NOT_HERE:
        if getattr(one.message, field) is not None:
            raise _bad(index, field, "cannot be set in a flow", "the flow sets ids, and holds members that wait")
    if one.on_failure not in _POLICIES:
        raise _bad(index, "on_failure", "must be fail, skip or run")
    if one.into is not None:
        validate.text(one.into or "-", f"members[{index}].into", 200)
        if not waits:
            raise _bad(index, "into", "is for members that wait for others", "name parents in after")
    if waits and one.message.review is not None:
        raise _bad(
            index, "review", "cannot be set for a member that waits for others",
            "let its task ask for the review: raise tampu.Review",
        )  # fmt: skip


def _bad(index: int, field: str, why: str, hint: str | None = None) -> InvalidMessage:
    return InvalidMessage(f"{field} of member {index} {why}", field=f"members[{index}].{field}", hint=hint)
