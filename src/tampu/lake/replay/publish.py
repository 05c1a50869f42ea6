"""Replay from the lake: messages that have ended run again, as new messages that know which old one caused them.

Never twice for one replay id. The id of each new message is computed from the replay id and the end it stands for, and
how far the replay has come is noted in the same commit that publishes; so it may be killed at any moment and started
again, also at once by two people, and also when what it published has long been worked on and removed. Where a store
has no such commit, the queue itself remembers, in the step that publishes, up to which end it has them.
The first run fixes up to where the lake is looked at: ends that come later are not part of the replay.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tampu.broker import access, validate
from tampu.broker.core import Steps
from tampu.broker.store import Store
from tampu.engines.port import PutDocument
from tampu.lake.query import Lake, Questions, checked_condition
from tampu.lake.replay.rows import BATCH, Progress, Row, batches, choose, rows
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidConfig, InvalidMessage, InvalidState, TampuError, VersionConflict
from tampu.model.message import Message, NewMessage
from tampu.spark.write.publish import KEPT_US, id_prefix, message_id

KIND = "replay"
_SPACE = uuid.UUID("5bd0c5f6-6c1f-5f57-9d54-a6c3ab0f2c11")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,99}\Z")
_SAMPLE = 5
_NAMED = 100


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would do now."""

    replay_id: str
    messages: int
    """Still to publish."""
    missing: int
    """Left out: they were removed from the store before the pipeline came by, so nobody knows their payload."""
    earlier: int
    """Already behind this replay id."""
    queues: dict[str, int]
    """Where they came from."""
    oldest: datetime | None
    newest: datetime | None
    sample: list[dict[str, Any]]


class Result(msgspec.Struct, kw_only=True):
    """What this run of a replay did."""

    replay_id: str
    new: int = 0
    already: int = 0
    """Were there: another run with this replay id had published them."""
    missing: int = 0
    refused: int = 0
    problems: list[tuple[str, str]] = []
    """Old ids that were left out, with the reason; at most the first hundred."""
    earlier: int
    """Were behind this replay id when the run began."""


_read = from_json(Progress).decode


class Replay:
    """Ended messages of the lake, published again, each once for a replay id. `preview` changes nothing; `run` goes on
    where it was.

    ``where`` is SQL over the columns of bronze.messages, ``queue`` and ``ids`` choose further; ``to`` is another queue
    to publish into. Only messages of the store's tenant are looked at. ``limit`` counts over all runs with the replay
    id.
    """

    def __init__(
        self,
        store: Store,
        lake: Lake | str,
        *,
        where: str | None = None,
        queue: str | None = None,
        ids: Sequence[str] | None = None,
        to: str | None = None,
        limit: int | None = None,
        replay_id: str | None = None,
    ) -> None:
        self.replay_id = uuid.uuid4().hex[:12] if replay_id is None else replay_id
        if not _ID.match(self.replay_id):
            raise InvalidMessage(
                f"{self.replay_id!r:.120} is not a replay id", field="replay_id", hint="1 to 100 of A-Z a-z 0-9 _ . : -"
            )
        if limit is not None and limit < 1:
            raise InvalidMessage("limit must be at least 1", field="limit")
        if to is not None:
            validate.name(to, "queue")
        if not access.is_local(store):
            raise InvalidConfig(
                "a replay from the lake keeps its note in the store itself, and this is a server",
                field="url",
                hint="name the url that the server serves: tampu --url jobs.db replay …",
            )
        self._joint = "transaction" in access.engine(store).capabilities
        self._q, self._lake = store, lake if isinstance(lake, Lake) else Lake(lake)
        self._tenant = store.tenant
        self._asked = {
            "where": None if where is None else checked_condition(where),
            "queue": queue,
            "ids": sorted(set(ids)) if ids else None,
            "to": to,
        }
        self._limit = limit

    def preview(self) -> Preview:
        """What `run` would publish."""
        with self._lake.ask(tenant=self._tenant) as lake:
            progress, _ = self._progress(lake)
            choose(lake, progress, self._limit)
            by_queue = lake.rows(
                "SELECT queue, count(*) FILTER (NOT gone) AS n, count(*) FILTER (gone) AS gone,"
                " min(ended_at) AS oldest, max(ended_at) AS newest FROM chosen GROUP BY queue ORDER BY n DESC, queue"
            )
            sample = lake.rows(
                "SELECT id, queue, state, type, ended_at, attempts, last_error FROM bronze.messages"
                " JOIN (SELECT id, ended_partition, ended_offset FROM chosen WHERE NOT gone"
                "       ORDER BY day, ended_partition, ended_offset, id LIMIT $most)"
                " USING (id, ended_partition, ended_offset) ORDER BY ended_at, id",
                {"most": _SAMPLE},
            )
        return Preview(
            replay_id=self.replay_id,
            messages=sum(row["n"] for row in by_queue),
            missing=sum(row["gone"] for row in by_queue),
            earlier=progress.seen,
            queues={row["queue"]: row["n"] for row in by_queue if row["n"]},
            oldest=min((row["oldest"] for row in by_queue), default=None),
            newest=max((row["newest"] for row in by_queue), default=None),
            sample=sample,
        )

    def run(
        self,
        *,
        rate: float | None = None,
        advance: Callable[[int], None] = lambda _rows: None,
        pause: Callable[[float], Any] = time.sleep,
    ) -> Result:
        """Publish what is left, at most ``rate`` messages a second."""
        if rate is not None and not 0 < rate <= 1e9:
            raise InvalidMessage("rate must be a number of messages a second", field="rate", hint="for example 50")
        with self._lake.ask(tenant=self._tenant) as lake:
            progress, version = self._progress(lake)
            if not version:
                with contextlib.suppress(VersionConflict):  # somebody else began it at the same moment
                    self._note(progress, 0)
                progress, version = self._progress(lake)
            done = Result(replay_id=self.replay_id, earlier=progress.seen)
            choose(lake, progress, self._limit)
            pace = _Pace(rate, pause)
            for batch in batches(rows(lake), pace.most):
                pace.wait(len(batch))
                left: Sequence[Row] = batch
                while left:
                    try:
                        progress, version = self._publish(left, progress, version, done)
                        break
                    except VersionConflict:
                        # Somebody else runs the same replay. What they have done is behind their note.
                        progress, version = self._progress(lake)
                        ahead = [row for row in left if progress.position is None or row.position > progress.position]
                        done.already += len(left) - len(ahead)
                        left = ahead
                advance(len(batch))
        return done

    # -- what it is and how far it came

    def _progress(self, lake: Questions) -> tuple[Progress, int]:
        """The note of this replay id with its version; a first one, version 0, if there is none."""
        document = access.engine(self._q).document(KIND, self._tenant, self.replay_id)
        if document is None:
            ends = lake.rows("SELECT ended_partition AS p, max(ended_offset) AS o FROM bronze.messages GROUP BY ALL")
            return Progress(upto={row["p"]: row["o"] for row in ends}, **self._asked), 0  # type: ignore[arg-type]  # as Progress has them
        progress = _read(document.value)
        for name, asked in self._asked.items():
            if getattr(progress, name) != asked:
                raise InvalidState(
                    f"the replay id {self.replay_id} was used with another {name}: {getattr(progress, name)!r:.200}",
                    field="replay_id",
                    hint="say the same again to go on, or take a new replay id",
                )
        return progress, document.version

    def _note(self, progress: Progress, version: int) -> int:
        reply = access.engine(self._q).run([self._put(progress, version)])[0]
        if isinstance(reply, TampuError):
            raise reply
        return int(reply)

    def _put(self, progress: Progress, version: int) -> PutDocument:
        return PutDocument(KIND, self._tenant, self.replay_id, msgspec.json.encode(progress), version)

    # -- publishing

    def _publish(self, batch: Sequence[Row], progress: Progress, version: int, done: Result) -> tuple[Progress, int]:
        """One batch and the note that it is done with, in one commit; without what the queue would refuse."""
        after = msgspec.structs.replace(progress, position=batch[-1].position, seen=progress.seen + len(batch))
        fit = [row for row in batch if not row.missing and row.payload is not None]
        refused: list[tuple[str, str]] = []
        try:
            messages, version = self._commit(fit, after, version)
        except InvalidMessage:
            why = [(row, self._refusal(row)) for row in fit]
            refused = [(row.id, text) for row, text in why if text is not None]
            messages, version = self._commit([row for row, text in why if text is None], after, version)
        done.missing += len(batch) - len(fit)
        done.refused += len(refused)
        gone = [(row.id, "its payload is not in the lake") for row in batch if row.missing or row.payload is None]
        done.problems = [*done.problems, *gone, *refused][:_NAMED]
        found = sum(m.duplicate for m in messages)
        done.already += found
        done.new += len(messages) - found
        return after, version

    def _refusal(self, row: Row) -> str | None:
        """Why a queue would not take this message by itself."""
        try:
            access.verbs(self._q).publishing(self._target(row), [self._message(row)])
        except InvalidMessage as error:
            return error.message
        return None

    def _target(self, row: Row) -> str:
        return str(self._asked["to"] or row.queue)

    def _commit(self, rows: Sequence[Row], after: Progress, version: int) -> tuple[list[Message], int]:
        put = self._put(after, version)
        by_queue: dict[str, list[NewMessage]] = {}
        for row in rows:
            by_queue.setdefault(self._target(row), []).append(self._message(row))
        if not self._joint:
            made = [m for queue, news in by_queue.items() for m in access.run(self._q, self._remembered(queue, news))]
            return made, self._note(after, version)
        with self._q.transaction() as tx:
            noted = int(access.run_in(tx, put))
            return [m for queue, news in by_queue.items() for m in tx.publish_many(queue, news)], noted

    def _remembered(self, queue: str, news: Sequence[NewMessage]) -> Steps[list[Message]]:
        """The note comes after: a kill in between is made good by the queue, which knows the numbers it has stored."""
        made: list[Message] = yield access.verbs(self._q).publishing(queue, news, remember_us=KEPT_US)
        return made

    def _id(self, row: Row) -> str:
        if not self._joint:
            # Numbers of a stem have to grow: so do the offsets of a day, in the order in which a replay goes.
            begin = id_prefix(self._tenant, f"replay\0{self.replay_id}\0{row.day}\0{row.partition}", 0)
            return message_id(begin, row.offset)
        name = f"{self._tenant}\0{self.replay_id}\0{row.id}\0{row.partition}\0{row.offset}"
        return str(uuid.uuid5(_SPACE, name))

    def _message(self, row: Row) -> NewMessage:
        return NewMessage(
            row.payload,
            type=row.type,
            content_type=row.content_type,
            headers=row.headers,
            labels=row.labels,
            priority=row.priority or 0,
            group=row.group,
            correlation_id=row.correlation_id,
            causation_id=row.id,
            source=f"replay:{self.replay_id}",
            id=self._id(row),
        )


class _Pace:
    """So many in a second, in steps of a tenth of a second or of one message."""

    def __init__(self, rate: float | None, pause: Callable[[float], Any]) -> None:
        self.most = BATCH if rate is None else max(1, min(BATCH, int(rate / 10)))
        self._rate, self._pause = rate, pause
        self._free = time.monotonic()

    def wait(self, messages: int) -> None:
        if self._rate is None:
            return
        now = time.monotonic()
        if self._free > now:
            self._pause(self._free - now)
        self._free = max(self._free, now) + messages / self._rate
