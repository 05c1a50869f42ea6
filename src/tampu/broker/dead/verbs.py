"""The verbs of dead letters across queues: list, groups, replay and its cancel and undo, purge."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any, Self, Unpack

import msgspec

from tampu.broker import validate
from tampu.broker.admin.verbs import Admin, MessagePage
from tampu.broker.core import Read, Steps
from tampu.broker.dead import jobs
from tampu.broker.dead.filters import DeadFilter, DeadFilters
from tampu.broker.dead.groups import Groups
from tampu.broker.dead.pages import MOST_READ, walk
from tampu.broker.policies.holds.verbs import holds_of
from tampu.engines.port import Document, Purge
from tampu.model.config import rate as parse_rate
from tampu.model.dead import DeadGroups, DeadJob
from tampu.model.definitions import Hold
from tampu.model.errors import InvalidMessage, InvalidState, NotFound, VersionConflict
from tampu.model.message import Message, State

MOST_IDS = 1000
_MOST_JOBS = 100
"""Replays of a tenant that run at once."""
_INLINE = 20
"""Steps of a replay without a rate that its caller does itself; maintenance does the rest."""
_STEP = 500
_SAMPLE = 10
_TRIES = 20


class DeadVerbs(Admin):
    """Dead letters of all queues of the tenant."""

    within: tuple[str, ...] = ("*",)
    """Patterns of the queues that the caller may see or change."""

    def limited_to(self, patterns: Sequence[str]) -> Self:
        """These verbs, for a caller who may see or change only queues of these patterns."""
        made = copy.copy(self)
        made.within = tuple(patterns)
        return made

    def _filter(self, filters: DeadFilters) -> DeadFilter:
        return msgspec.structs.replace(DeadFilter.of(filters), within=self.within)

    def list_dead(
        self, *, after: str | None = None, limit: int = 100, **filters: Unpack[DeadFilters]
    ) -> Steps[MessagePage]:
        """A page of dead letters over all queues: queue by queue, in each the oldest first.

        It reads at most 10,000 dead letters, and ends sooner when it has 8 MB; then its cursor goes on.
        """
        validate.whole(limit, "limit", 1, 10_000)
        found: list[Message] = []
        place = yield from walk(self.tenant, self._filter(filters), after, found.append, most=limit)
        return MessagePage(found, place.cursor)

    def group_dead(
        self, *, after: str | None = None, most: int | None = None, **filters: Unpack[DeadFilters]
    ) -> Steps[DeadGroups]:
        """Dead letters by the fingerprint of their error, the largest group first: the first thousand fingerprints.

        It reads all that match, 10,000 at a time. With ``most`` it ends when it has read so many, and its ``cursor`` is
        where the next ones begin.
        """
        if most is not None:
            validate.whole(most, "most", 1, 10**9)
        groups, read = Groups(), 0
        while True:
            page = yield from self.group_some_dead(after=after, **filters)
            groups.merge(page)
            read, after = read + page.read, page.cursor
            if after is None or (most is not None and read >= most):
                return DeadGroups(groups.views(), read, after)

    def group_some_dead(self, *, after: str | None = None, **filters: Unpack[DeadFilters]) -> Steps[DeadGroups]:
        """`group_dead` of the next 10,000: its cursor is where the next ones begin."""
        groups = Groups()
        place = yield from walk(self.tenant, self._filter(filters), after, groups.add)
        return DeadGroups(groups.views(), place.read, place.cursor)

    def replay_dead(
        self,
        ids: str | Sequence[str] | None = None,
        *,
        rate: str | float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        **filters: Unpack[DeadFilters],
    ) -> Steps[DeadJob]:
        """Replay dead letters by id, or all that match, with the settings of today. ``queue="*"`` replays all.

        The id of a copy that `dead_letter_to` made replays its origin. Without a ``rate``, such as ``50/s``, the first
        10,000 are replayed before it returns, else maintenance replays them. It goes on if this process dies. Messages
        that die again meanwhile are not replayed again.
        """
        wanted, chosen = self._filter(filters), _ids(ids)
        per_second = _checked_rate(rate)
        if limit is not None:
            validate.whole(limit, "limit", 1, 10**9)
        _need_choice(chosen, wanted)
        if dry_run:
            return (yield from self._preview("replay", wanted, chosen, limit))
        yield from self._check_replays()
        now: int = yield Read(lambda engine: engine.now())
        id = jobs.new_id(now)
        job = jobs.StoredJob(
            created_us=now, actor=self.actor.name, next_us=now if per_second else now + jobs.LEASE_US,
            filter=wanted.before(now + 1), ids=chosen, rate=per_second, limit=limit or 0,
        )  # fmt: skip
        what = {**_words(wanted), "ids": list(chosen), "rate": rate, "limit": limit, "replay": id}
        shown = {name: value for name, value in what.items() if value}
        yield from self.recorded([jobs.put(self.tenant, id, job, 0)], "dead.replay", wanted.target, after=shown)
        if not per_second:
            job = yield from self._run(id, job)
        return jobs.view(id, job)

    def _run(self, id: str, job: jobs.StoredJob) -> Steps[jobs.StoredJob]:
        """Carry out the beginning of a job; maintenance does the rest, and all of it if this process dies."""
        for _ in range(_INLINE):
            try:
                job = yield from jobs.advance(self.core, self.tenant, id, lease_us=jobs.LEASE_US)
            except VersionConflict:  # somebody cancels it, or maintenance goes on with it
                job, _ = yield from jobs.find(self.tenant, id)
            if job.status != "running":
                return job
        for _ in range(_TRIES):
            job, version = yield from jobs.find(self.tenant, id)
            now: int = yield Read(lambda engine: engine.now())
            try:
                yield jobs.put(self.tenant, id, msgspec.structs.replace(job, next_us=now), version)
            except VersionConflict:
                continue
            break
        return job

    def _check_replays(self) -> Steps[None]:
        running = [job for _, job in (yield from self._jobs()) if job.status in ("running", "undoing")]
        if len(running) >= _MOST_JOBS:
            raise InvalidState(f"{_MOST_JOBS} replays run already", hint="wait until they end, or cancel some")

    def _jobs(self) -> Steps[list[tuple[str, jobs.StoredJob]]]:
        prefix = jobs.name_of(self.tenant, "")
        found: list[Document] = yield Read(lambda engine: engine.documents(jobs.KIND, jobs.TENANT, prefix))
        return [(document.name.removeprefix(prefix), jobs.decode(document.value)) for document in found]

    def list_dead_replays(self) -> Steps[list[DeadJob]]:
        """Replays that run or ended within a day, the oldest first."""
        found = yield from self._jobs()
        return [jobs.view(id, job) for id, job in found if self._may_see(job)]

    def get_dead_replay(self, id: str) -> Steps[DeadJob]:
        """A replay, with what it has done so far."""
        return jobs.view(id, (yield from self._find(id)))

    def _find(self, id: str) -> Steps[jobs.StoredJob]:
        if not isinstance(id, str) or not 0 < len(id) <= 64:
            raise InvalidMessage("id must be that of a replay", field="id")
        job, _ = yield from jobs.find(self.tenant, id)
        if not self._may_see(job):
            raise NotFound(f"no replay {id}", field="id")
        return job

    def _may_see(self, job: jobs.StoredJob) -> bool:
        """True if all queues that the job may reach are among those of the caller."""
        reach = (job.filter.within, (job.filter.queue or "*",))
        return any(all(any(_includes(own, place) for own in self.within) for place in places) for places in reach)

    def cancel_dead_replay(self, id: str) -> Steps[DeadJob]:
        """Replay nothing more. What was replayed stays so."""
        return (yield from self._stop(id, "dead.cancel", undo=False))

    def undo_dead_replay(self, id: str) -> Steps[DeadJob]:
        """Replay nothing more, and make dead again what was replayed within the last minute and not delivered since.

        Such messages have the reason, errors and attempts that they had. They died now, as far as retention and the
        order of dead letters are concerned.
        """
        return (yield from self._stop(id, "dead.undo", undo=True))

    def _stop(self, id: str, action: str, *, undo: bool) -> Steps[DeadJob]:
        yield from self._find(id)
        for _ in range(_TRIES):
            job, call = yield from jobs.stop(self.tenant, id, "cancelled", check=undo)
            try:
                yield from self.recorded([call], action, job.filter.target, after={"replay": id, "count": job.count})
            except VersionConflict:
                continue
            if undo:
                with contextlib.suppress(VersionConflict):  # maintenance was faster
                    yield from jobs.advance(self.core, self.tenant, id)
            job, _ = yield from jobs.find(self.tenant, id)
            return jobs.view(id, job)
        raise VersionConflict(f"replay {id} keeps changing", hint="try again")

    def purge_dead(
        self,
        ids: str | Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        after: str | None = None,
        **filters: Unpack[DeadFilters],
    ) -> Steps[DeadJob]:
        """Remove dead letters for good by id, or all that match; ``queue="*"`` removes all. Cannot be undone.

        It looks at 10,000 dead letters at most. If it is not ``complete`` then, go on with its ``cursor`` as ``after``.
        """
        wanted, chosen = self._filter(filters), _ids(ids)
        _need_choice(chosen, wanted)
        if dry_run:
            return (yield from self._preview("purge", wanted, chosen, None, after))
        shown = {**_words(wanted), **({"ids": list(chosen)} if chosen else {})}
        yield from self.record("dead.purge", wanted.target, shown)
        if chosen:
            return (yield from self._purge_each((yield from self._dead_by_ids(wanted, chosen)), None))
        found: list[Message] = []
        place = yield from walk(self.tenant, wanted, after, found.append, most=MOST_READ)
        return (yield from self._purge_each(found, place.cursor))

    def _purge_each(self, messages: Sequence[Message], cursor: str | None) -> Steps[DeadJob]:
        by_queue: dict[str, list[str]] = {}
        holds: list[Hold] = yield Read(lambda engine: holds_of(engine, self.tenant))
        for message in messages:
            if not any(hold.covers(message) for hold in holds):
                by_queue.setdefault(message.queue, []).append(message.id)
        gone: dict[str, int] = {}
        for queue, names in by_queue.items():
            for start in range(0, len(names), _STEP):
                some = names[start : start + _STEP]
                count: int = yield Purge(self.tenant, queue, State.DEAD, len(some), self.actor.name, ids=some)
                gone[queue] = gone.get(queue, 0) + count
        sample = [message.id for message in messages[:_SAMPLE]]
        return DeadJob(
            action="purge", status="done", count=sum(gone.values()), queues=gone, sample=sample,
            complete=cursor is None, cursor=cursor, by=self.actor.name,
        )  # fmt: skip

    def _dead_by_ids(self, wanted: DeadFilter, ids: Sequence[str]) -> Steps[list[Message]]:
        found = []
        for id in ids:
            message: Message | None = yield Read(lambda engine, i=id: engine.get(self.tenant, i))  # type: ignore[misc]  # bound now
            if message is not None and message.state is State.DEAD and wanted.takes_queue(message.queue):
                found.append(message)
        return found

    def _preview(
        self, action: Any, wanted: DeadFilter, ids: Sequence[str], limit: int | None, after: str | None = None
    ) -> Steps[DeadJob]:
        queues: dict[str, int] = {}
        sample: list[str] = []

        def add(message: Message) -> None:
            if limit is None or sum(queues.values()) < limit:
                queues[message.queue] = queues.get(message.queue, 0) + 1
                if len(sample) < _SAMPLE:
                    sample.append(message.id)

        cursor = None
        if ids:
            for id in ids:
                message = yield from jobs.origin(self.tenant, id)
                if message is not None and message.state is State.DEAD and wanted.takes_queue(message.queue):
                    add(message)
        else:
            place = yield from walk(self.tenant, wanted, after, add)
            cursor = place.cursor if limit is None or sum(queues.values()) < limit else None
        return DeadJob(
            action=action, status="preview", count=sum(queues.values()), queues=queues, sample=sample,
            complete=cursor is None, cursor=cursor,
        )  # fmt: skip


def _includes(pattern: str, place: str) -> bool:
    """True if the pattern matches every queue that ``place``, a queue or a pattern, does."""
    if pattern == place:
        return True
    return pattern.endswith("*") and "*" not in pattern[:-1] and place.partition("*")[0].startswith(pattern[:-1])


def _ids(ids: Any) -> tuple[str, ...]:
    if ids is None:
        return ()
    given = [ids] if isinstance(ids, str) else ids
    if not isinstance(given, Sequence) or not 0 < len(given) <= MOST_IDS:
        raise InvalidMessage(f"give 1 to {MOST_IDS} ids", field="ids", hint="or a filter, such as queue or reason")
    return tuple(dict.fromkeys(validate.id_text(id) for id in given))


def _need_choice(ids: Sequence[str], wanted: DeadFilter) -> None:
    """Everything must be asked for: it is what a forgotten filter means."""
    named = _words(wanted)
    if bool(ids) == bool(named):
        raise InvalidMessage(
            "give ids, or filters", field="ids", hint='queue="*" is for the dead letters of all queues'
        )


def _words(wanted: DeadFilter) -> dict[str, Any]:
    """What a filter has, for the audit trail."""
    fields: dict[str, Any] = msgspec.to_builtins(wanted)
    return {name: value for name, value in fields.items() if name != "within"}


def _checked_rate(rate: Any) -> float:
    if rate is None:
        return 0.0
    value = parse_rate(rate, "rate") if isinstance(rate, str) else rate
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0001 <= value <= 100_000:
        raise InvalidMessage(
            "rate must be between 0.0001 and 100,000 messages a second", field="rate", hint="such as 50/s"
        )
    return float(value)
