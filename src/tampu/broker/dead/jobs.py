"""Replays of dead letters: a document each, which the leader of maintenance carries on if its caller dies.

A step chooses some messages and stores them as a *page*, a document, in one unit with the progress of the job; then it
replays them; then it stores how many there were. What the process does not get to is done by the next step:

- It dies after the page is stored: the next step finds the page ``pending``, and replays those that are still dead.
- Two processes do the same step: the version of the job's document lets one of them store its page.

A page also has what `undo` needs. It is kept for a minute.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import msgspec

from tampu.broker.audit import name_at
from tampu.broker.core import Core, Read, Steps
from tampu.broker.dead.filters import DeadFilter
from tampu.broker.dead.pages import walk
from tampu.engines.port import DeleteDocument, Document, PutDocument, Replay, Together, UndoReplay
from tampu.model.dead import DeadJob, DeadStatus
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidState, NotFound, VersionConflict
from tampu.model.message import Message, State
from tampu.model.outcome import Outcome
from tampu.model.times import SECOND, moment

KIND = "dead_replay"
PAGE = "dead_replay_page"
TENANT = "*"
"""Jobs of all tenants are under this one, named ``tenant/id``, so that one read finds all of them."""
ORIGIN = "tampu-dead-id"
"""Header of a copy that `dead_letter_to` has made: the id of the dead letter."""
UNDO_US = 60 * SECOND
LEASE_US = 10 * SECOND
"""A caller that carries out its own job is left alone for this long after each step."""
KEPT_US = 86_400 * SECOND
"""How long a job can be seen after its end."""
STEP = 500
_MOST_PAGES = 600
"""Pages that undo can take back, however fast they come."""
_MOST_QUEUES = 1000
_SAMPLE = 10
_TRIES = 20


class StoredJob(msgspec.Struct, frozen=True, omit_defaults=True):
    created_us: int
    actor: str
    next_us: int
    """When maintenance has something to do for it."""
    filter: DeadFilter
    ids: tuple[str, ...] = ()
    """These messages, in place of those that match the filter."""
    rate: float = 0.0
    limit: int = 0
    status: DeadStatus = "running"
    cursor: str | None = None
    """Where it goes on: in the dead letters or, as a number, in ``ids``."""
    chosen: int = 0
    """Messages in all pages."""
    last: bool = False
    """There is nothing after the cursor."""
    pages: dict[str, int] = {}
    """Number and time of the pages that are kept."""
    pending: int = 0
    """The page that is being replayed; 0: none."""
    count: int = 0
    refused: int = 0
    undone: int = 0
    queues: dict[str, int] = {}
    sample: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A message of a page, as it was before its replay."""

    id: str
    queue: str
    reason: str
    attempts: int
    died_us: int
    max_attempts: int
    """From now on."""


decode = from_json(StoredJob).decode
_read_page = from_json(list[Entry]).decode


def name_of(tenant: str, id: str) -> str:
    return f"{tenant}/{id}"


def new_id(now: int) -> str:
    return f"{name_at(now)}-{secrets.token_hex(4)}"


def put(tenant: str, id: str, job: StoredJob, version: int | None) -> PutDocument:
    return PutDocument(KIND, TENANT, name_of(tenant, id), msgspec.json.encode(job), version)


def find(tenant: str, id: str) -> Steps[tuple[StoredJob, int]]:
    """The job and the version of its document."""
    document: Document | None = yield Read(lambda engine: engine.document(KIND, TENANT, name_of(tenant, id)))
    if document is None:
        raise NotFound(f"no replay {id!r:.60}", field="id", hint="a replay can be seen for a day after its end")
    return decode(document.value), document.version


def view(id: str, job: StoredJob) -> DeadJob:
    """A job as users see it."""
    newest = max(job.pages.values(), default=None)
    return DeadJob(
        action="replay", status=job.status, count=job.count, queues=job.queues, sample=list(job.sample), id=id,
        refused=job.refused, undone=job.undone, rate=job.rate or None, by=job.actor, created_at=moment(job.created_us),
        undo_until=None if newest is None or job.status == "undone" else moment(newest + UNDO_US),
    )  # fmt: skip


# -- a step


def advance(core: Core, tenant: str, id: str, *, lease_us: int = 0) -> Steps[StoredJob]:
    """Carry out one step of a job. ``lease_us``: the caller goes on with it, so maintenance leaves it alone."""
    job, version = yield from find(tenant, id)
    now: int = yield Read(lambda engine: engine.now())
    if job.status == "undoing":
        return (yield from _take_back(tenant, id, job, version))
    if job.status != "running":
        return (yield from _clean(tenant, id, job, version, now))
    if job.pending:
        entries = yield from _entries(tenant, id, job.pending)
        left = yield from _still_dead(tenant, entries)
        return (yield from _replay(tenant, id, job, version, entries, left))
    entries, skipped, cursor, last = yield from _choose(core, tenant, job)
    job = msgspec.structs.replace(job, refused=job.refused + skipped)
    if not entries:
        status: DeadStatus = "done" if last else "running"
        job = msgspec.structs.replace(job, cursor=cursor, last=last, status=status, next_us=now + lease_us)
        yield put(tenant, id, job if status == "running" else _ended(job, status, now), version)
        return job
    number = max(map(int, job.pages), default=0) + 1
    kept, outdated = _split(job, now)
    wait_us = round(len(entries) / job.rate * SECOND) if job.rate else lease_us
    job = msgspec.structs.replace(
        job, cursor=cursor, last=last, pending=number, pages=kept | {str(number): now}, next_us=now + wait_us,
        chosen=job.chosen + len(entries), sample=(*job.sample, *(one.id for one in entries))[:_SAMPLE],
    )  # fmt: skip
    page = PutDocument(PAGE, TENANT, _page_name(tenant, id, number), msgspec.json.encode(entries), 0)
    calls: list[PutDocument | DeleteDocument] = [put(tenant, id, job, version), page, *_deleting(tenant, id, outdated)]
    replies: list[int] = yield Together(TENANT, calls)
    return (yield from _replay(tenant, id, job, replies[0], entries, entries))


def _choose(core: Core, tenant: str, job: StoredJob) -> Steps[tuple[list[Entry], int, str | None, bool]]:
    """The next messages, how many given ids are not dead, the cursor behind them, and whether there are no more."""
    skipped = 0
    most = STEP if not job.rate else min(STEP, max(1, math.ceil(job.rate)))
    if job.limit:
        most = min(most, job.limit - job.chosen)
    if job.last or most <= 0:
        return [], 0, job.cursor, True
    messages: list[Message] = []
    if job.ids:
        done = int(job.cursor or 0)
        for id in job.ids[done : done + most]:
            message = yield from origin(tenant, id)
            if message is not None and message.state is State.DEAD and job.filter.takes_queue(message.queue):
                messages.append(message)
            else:
                skipped += 1
        cursor: str | None = str(done + most)
        last = done + most >= len(job.ids)
    else:
        place = yield from walk(tenant, job.filter, job.cursor, messages.append, most=most)
        cursor, last = place.cursor, place.cursor is None
    entries = []
    for message in messages:
        most_attempts = message.body.own_max_attempts or core.settings.get(tenant, message.queue).max_attempts
        died = message.ended_us or 0
        entries.append(Entry(message.id, message.queue, message.reason or "", message.attempts, died, most_attempts))
    return entries, skipped, cursor, last


def origin(tenant: str, id: str) -> Steps[Message | None]:
    """The message with this id; of a copy made by `dead_letter_to`, the dead letter that it is a copy of."""
    message: Message | None = yield Read(lambda engine: engine.get(tenant, id))
    of = None if message is None else message.headers.get(ORIGIN)
    if of is None:
        return message
    found: Message | None = yield Read(lambda engine: engine.get(tenant, of))
    return found


def _still_dead(tenant: str, entries: Sequence[Entry]) -> Steps[list[Entry]]:
    """Those that were not replayed: they are dead since the time in the page."""
    found: list[Entry] = []
    for entry in entries:
        message: Message | None = yield Read(lambda engine, id=entry.id: engine.get(tenant, id))  # type: ignore[misc]  # bound now
        if message is not None and message.state is State.DEAD and message.ended_us == entry.died_us:
            found.append(entry)
    return found


def _replay(
    tenant: str, id: str, job: StoredJob, version: int, entries: Sequence[Entry], left: Sequence[Entry]
) -> Steps[StoredJob]:
    """Replay what is left of the pending page, and store how many there were."""
    outcomes: list[Outcome] = []
    if left:
        ids, attempts = [entry.id for entry in left], [entry.max_attempts for entry in left]
        outcomes = yield Replay(tenant, ids, attempts, job.actor)
    refused = {outcome.id for outcome in outcomes if not outcome.ok}
    done = [entry for entry in entries if entry.id not in refused]
    for _ in range(_TRIES):
        queues = dict(job.queues)
        for entry in done:
            if entry.queue in queues or len(queues) < _MOST_QUEUES:
                queues[entry.queue] = queues.get(entry.queue, 0) + 1
        new = msgspec.structs.replace(
            job, pending=0, count=job.count + len(done), refused=job.refused + len(refused), queues=queues
        )
        now: int = yield Read(lambda engine: engine.now())
        if new.last and new.status == "running":
            new = _ended(new, "done", now)
        try:
            yield put(tenant, id, new, version)
            return new
        except VersionConflict:
            page, before = job.pending, job.status
            job, version = yield from find(tenant, id)
            if job.status in ("undoing", "undone") and before == "running":
                # It was undone while these were replayed here: they go back too.
                yield _undoing(tenant, job.actor, done)
                return job
            if job.pending != page:  # another process has done the same
                return job
    raise VersionConflict(f"replay {id} keeps changing", hint="try again")


# -- its end


def stop(tenant: str, id: str, status: DeadStatus, check: bool = False) -> Steps[tuple[StoredJob, PutDocument]]:
    """The job as it is, and the call that stops it: nothing more of it is replayed.

    With ``check``, refused if `undo` has nothing to take back.
    """
    job, version = yield from find(tenant, id)
    now: int = yield Read(lambda engine: engine.now())
    if check:
        kept, _ = _split(job, now)
        if job.status in ("undoing", "undone"):
            raise InvalidState(f"replay {id} is undone already")
        if not kept:
            raise InvalidState(
                f"replay {id} has replayed nothing within the last minute", hint="cancel it, or cancel the messages"
            )
        new = msgspec.structs.replace(job, status="undoing", next_us=now + LEASE_US)
    elif job.status != "running":
        raise InvalidState(f"replay {id} is {job.status}, not running")
    else:
        new = _ended(job, status, now)
    return job, put(tenant, id, new, version)


def _take_back(tenant: str, id: str, job: StoredJob, version: int) -> Steps[StoredJob]:
    """Make the messages of the last minute's pages dead again. To do it twice changes nothing."""
    now: int = yield Read(lambda engine: engine.now())
    kept, _ = _split(job, job.next_us - LEASE_US)  # when undo was asked for
    undone = 0
    for number in sorted(map(int, kept)):
        entries = yield from _entries(tenant, id, number)
        for start in range(0, len(entries), STEP):
            outcomes: list[Outcome] = yield _undoing(tenant, job.actor, entries[start : start + STEP])
            undone += sum(outcome.ok for outcome in outcomes)
    new = _ended(msgspec.structs.replace(job, undone=undone, pending=0, pages={}), "undone", now)
    yield Together(TENANT, [put(tenant, id, new, version), *_deleting(tenant, id, job.pages)])
    return new


def _undoing(tenant: str, actor: str, entries: Sequence[Entry]) -> UndoReplay:
    return UndoReplay(
        tenant, [one.id for one in entries], [one.reason for one in entries], [one.attempts for one in entries], actor
    )


def _clean(tenant: str, id: str, job: StoredJob, version: int, now: int) -> Steps[StoredJob]:
    """Remove pages that are too old to be undone; then, a day later, the job."""
    kept, outdated = _split(job, now)
    if outdated:
        new = msgspec.structs.replace(job, pages=kept, next_us=_next_cleaning(kept, now))
        yield Together(TENANT, [put(tenant, id, new, version), *_deleting(tenant, id, outdated)])
        return new
    if not kept and now >= job.next_us:
        yield DeleteDocument(KIND, TENANT, name_of(tenant, id))
    return job


def _ended(job: StoredJob, status: DeadStatus, now: int) -> StoredJob:
    return msgspec.structs.replace(job, status=status, next_us=_next_cleaning(job.pages, now))


def _next_cleaning(pages: dict[str, int], now: int) -> int:
    return now + KEPT_US if not pages else max(pages.values()) + UNDO_US + 1


def _split(job: StoredJob, now: int) -> tuple[dict[str, int], dict[str, int]]:
    """The pages that can be undone, and those that are too old."""
    newest = sorted(job.pages, key=int)[-_MOST_PAGES:]
    kept = {number: job.pages[number] for number in newest if job.pages[number] + UNDO_US >= now}
    return kept, {number: at for number, at in job.pages.items() if number not in kept}


def _page_name(tenant: str, id: str, number: int) -> str:
    return f"{tenant}/{id}/{number}"


def _deleting(tenant: str, id: str, pages: dict[str, int]) -> list[DeleteDocument]:
    return [DeleteDocument(PAGE, TENANT, _page_name(tenant, id, int(number))) for number in pages]


def _entries(tenant: str, id: str, number: int) -> Steps[list[Entry]]:
    document: Document | None = yield Read(lambda engine: engine.document(PAGE, TENANT, _page_name(tenant, id, number)))
    return [] if document is None else _read_page(document.value)
