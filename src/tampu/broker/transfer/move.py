"""A move from beginning to end. Each step may be the last before a kill: the next run does it again, to no harm."""

from __future__ import annotations

import msgspec

from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.journal_readers import registered
from tampu.broker.settings import DEFAULTS, KIND
from tampu.broker.transfer import close, documents, progress, report
from tampu.broker.transfer.messages import CARRIED, MessageTransfer, Moved
from tampu.broker.transfer.progress import SourceProgress, TargetProgress
from tampu.broker.transfer.report import QueueCount, Report
from tampu.engines.port import Engine, QueueStats
from tampu.model.errors import InvalidConfig, InvalidState, StorageError
from tampu.model.states import FINAL

_MOST_PASSES = 20


class TransferOptions(msgspec.Struct, frozen=True):
    """What may be chosen."""

    ended: bool = False
    """Messages that have ended go too."""
    into_existing: bool = False
    """The target may have messages already."""
    force: bool = False
    """Leased messages go as if their lease had run out; readers that have not read all stay behind."""
    wait_seconds: float = 30.0
    """For leases to end."""


def _nobody(name: str, count: int) -> None:
    """Nobody looks on."""


class Move:
    """From one store to another; both are open, without keepers."""

    def __init__(self, source: Engine, target: Engine, options: TransferOptions, *, origin: str, goal: str) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._origin = origin
        self._goal = goal
        self.states = CARRIED + (FINAL if options.ended else ())

    def run(self, moved: Moved = _nobody) -> Report:
        away, coming = self._begin()
        if coming.done:
            return Report(was_done=True, notes=[f"it has moved to {away.target} before"])
        if coming.arrived:  # and compared; who works at the target may have begun
            made = Report(queues=self._in_source())
            report.count(made, self._target)
        else:
            made = self._bring(away, coming, moved)
            coming.arrived = True
            progress.save(self._target, coming)
        self._finish(away, coming)
        return made

    # -- who moves where

    def _begin(self) -> tuple[SourceProgress, TargetProgress]:
        """The notes of this move, made if it is new. Nothing is closed yet."""
        source, target = self._source, self._target
        away = progress.away(source)
        new = away is None
        if away is None:
            away = SourceProgress(token=progress.new_token(), began_us=source.now(), target=self._goal)
            progress.save(source, away)
            try:
                self._check_other()
            except InvalidConfig:
                progress.forget_source_progress(source)
                raise
        coming = progress.coming(target, away.token)
        if coming is None:
            try:
                self._check_target(away)
            except InvalidState:
                if new:
                    progress.forget_source_progress(source)
                raise
            away.target = self._goal
            progress.save(source, away)
            coming = self._expect(away)
            progress.save(target, coming)
        return away, coming

    def _check_other(self) -> None:
        found, mine = progress.away(self._target), progress.away(self._source)
        if found is not None and mine is not None and found.token == mine.token:
            raise InvalidConfig("source and target are the same store", field="target")

    def _check_target(self, away: SourceProgress) -> None:
        if away.done:
            raise InvalidState(
                f"the source has moved to {away.target} already",
                hint="its messages are there; a second copy would deliver them twice",
            )
        if away.statuses:
            raise InvalidState(
                f"the source is on its way to {away.target}", hint="go on with that, or give it up with --reopen"
            )
        gone = progress.away(self._target)
        if gone is not None:
            raise InvalidState(
                f"the target is a house that was moved to {gone.target}: what it holds is out of date",
                hint="copy into an empty target, or give that move up first with --reopen",
            )
        half = progress.begun(self._target)
        if half is not None and self._target.queues():
            raise InvalidState(
                f"the target has the beginning of a move from {half.origin} that was given up or is not done",
                field="target",
                hint="its queues are closed and its settings may be old: copy into an empty one",
            )
        total = sum(sum(stats.counts.values()) for stats in self._all_stats(self._target))
        if total and not self._options.into_existing:
            raise InvalidState(
                f"the target has {total} messages of its own",
                field="target",
                hint="copy into an empty one, or add to it with --into-existing",
            )

    def _expect(self, away: SourceProgress) -> TargetProgress:
        """What there is at the target before anything comes."""
        target = self._target
        before: dict[str, str | None] = {}
        there = {f"{stats.tenant}/{stats.queue}": sum(stats.counts.values()) for stats in self._all_stats(target)}
        defaults = [d.tenant for d in target.all_documents() if (d.kind, d.name) == (KIND, DEFAULTS)]
        for name in (*there, *(f"{tenant}/{DEFAULTS}" for tenant in defaults)):
            before[name] = close.own_config(target, *close.split(name))[0].status
        return TargetProgress(
            token=away.token,
            began_us=target.now(),
            origin=self._origin,
            before=before,
            had={name: count for name, count in there.items() if count},
            fresh=not any(end_of_journal(target).values()),
        )

    @staticmethod
    def _all_stats(engine: Engine) -> list[QueueStats]:
        return [stats for tenant in sorted({t for t, _ in engine.queues()}) for stats in engine.stats(tenant, None)]

    # -- the way

    def _bring(self, away: SourceProgress, coming: TargetProgress, moved: Moved) -> Report:
        close.close(self._source, away)
        close.wait_until_noticed()  # also if nothing was open: who closed it may have been killed just now
        self._wait()
        made = Report()
        end = coming.journal or end_of_journal(self._source)
        behind = documents.check_readers(self._source, end, force=self._options.force)
        made.notes += [f"{name} had not read the journal to its end and stays behind" for name in behind]
        if not coming.journal:
            coming.journal = end
            progress.save(self._target, coming)
        documents.start_journal(self._target, coming)
        made.documents = documents.carry_documents(self._source, self._target, away, coming)
        self._carry(away, made, moved)
        close.sweep(self._target)
        report.count(made, self._target)
        report.compare(made, coming.had, strict=not self._options.into_existing)
        made.readers = documents.carry_readers(self._source, self._target, coming)
        self._check_quiet(made)
        made.notes += [
            f"{reader.name} reads another journal from now on: register it anew at the target"
            for reader in registered(self._source)
            if reader.name not in (*made.readers, *behind)
        ]
        return made

    def _came_late(self, made: Report) -> list[str]:
        """Queues of the source that have more than the last look at them has found."""
        found = {queue.name: sum(queue.source.values()) for queue in made.queues}
        return [queue.name for queue in self._in_source() if sum(queue.source.values()) > found.get(queue.name, 0)]

    def _check_quiet(self, made: Report) -> None:
        """Before it is said that all has arrived: nobody has published or claimed in the source since."""
        late = self._came_late(made)
        if late:
            raise InvalidState(
                f"messages still come to {', '.join(late)} in the source, though it is closed",
                hint="stop who publishes there and copy again: it goes on",
            )
        self._refuse_leases(close.leased(self._source))

    def _wait(self) -> None:
        self._refuse_leases(close.wait_for_leases(self._source, self._options.wait_seconds))

    def _refuse_leases(self, found: dict[str, int]) -> None:
        if found and not self._options.force:
            where = ", ".join(f"{count} in {name}" for name, count in found.items())
            raise InvalidState(
                f"workers still have messages of the source: {where}",
                hint="the queues are closed: wait until the workers are through and copy again (it goes on), "
                "or take the messages from them with --force",
            )

    def _queues(self) -> list[QueueCount]:
        return [QueueCount(tenant, queue) for tenant, queue in self._source.queues()]

    def _in_source(self) -> list[QueueCount]:
        """As its own counts say."""
        return [
            QueueCount(stats.tenant, stats.queue, {s: n for s, n in stats.counts.items() if n and s in self.states})
            for stats in self._all_stats(self._source)
        ]

    def _carry(self, away: SourceProgress, made: Report, moved: Moved) -> None:
        """Again and again, until one look at all of the source finds nothing that the target has not got: messages may
        have moved from one state to another between two looks."""
        carrier = MessageTransfer(self._source, self._target, self._origin, into=self._options.into_existing)
        for _ in range(_MOST_PASSES):
            if close.close(self._source, away):  # a queue was made by somebody who was slow
                close.wait_until_noticed()
            made.queues = self._queues()
            new = sum(carrier.carry(queue, self.states, moved) for queue in made.queues)
            made.stored += new
            moved = _nobody
            if not new and not self._came_late(made):
                break
        else:
            raise StorageError("new messages keep coming in the source", hint="stop who publishes there")
        lost = 0
        for tenant in sorted({queue.tenant for queue in made.queues}):
            came, unknown = carrier.requests(tenant)
            made.requests += came
            lost += unknown
        if lost:
            made.notes.append(
                f"{lost} idempotency keys stay behind: their messages are gone, and nobody knows from which queue"
            )

    def _finish(self, away: SourceProgress, coming: TargetProgress) -> None:
        """Everything is at the target: open it. The source stays closed, and can not be taken elsewhere."""
        away.done = True
        progress.save(self._source, away)
        statuses = {name: status for name, status in away.statuses.items() if close.split(name)[1] != DEFAULTS}
        close.open_again(self._target, (statuses | coming.before).items())
        documents.leave_identity(self._source, coming)
        coming.done = True
        progress.save(self._target, coming)

    def look(self) -> Report:
        """What there is to move, without touching anything."""
        made = Report(queues=self._in_source(), dry_run=True)
        made.notes += [f"{name}: workers have {count} messages" for name, count in close.leased(self._source).items()]
        made.documents = sum(document.kind != progress.KIND for document in self._source.all_documents())
        made.notes += [
            f"{name} has not read the journal to its end"
            for name in documents.check_readers(self._source, end_of_journal(self._source), force=True)
        ]
        return made


def reopen(source: Engine, *, force: bool = False) -> list[str]:
    """Give a move up: the queues of the source are what they were. Which."""
    away = progress.away(source)
    if away is None:
        raise InvalidState("this house is not being moved")
    if away.done and not force:
        raise InvalidState(
            f"this house has moved to {away.target}: opened again, it would deliver its messages a second time",
            hint="work goes on there; with --force if that one is to be thrown away",
        )
    close.open_again(source, away.statuses.items())
    progress.forget_source_progress(source)
    return list(away.statuses)
