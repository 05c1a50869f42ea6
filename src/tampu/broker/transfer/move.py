"""A migration from beginning to end. Every step can be repeated: the process may be killed after any of them."""

from __future__ import annotations

import msgspec

from tampu.broker.journal_cursor import end_of_journal
from tampu.broker.journal_readers import registered
from tampu.broker.settings import KIND
from tampu.broker.transfer import close, documents, progress, report
from tampu.broker.transfer.messages import CARRIED, MessageTransfer, Moved
from tampu.broker.transfer.progress import SourceProgress, TargetProgress
from tampu.broker.transfer.report import QueueCount, Report
from tampu.engines.port import Engine, QueueStats
from tampu.model.config import is_pattern
from tampu.model.errors import InvalidConfig, InvalidState, StorageError
from tampu.model.states import FINAL

_MOST_PASSES = 20


class TransferOptions(msgspec.Struct, frozen=True):
    """Options of a migration."""

    ended: bool = False
    """Copy ended messages too."""
    into_existing: bool = False
    """The target may have messages of its own."""
    force: bool = False
    """Copy leased messages as if their leases had expired; leave readers behind that have not read all."""
    wait_seconds: float = 30.0
    """How long to wait for leases to end."""


def _ignore(name: str, count: int) -> None:
    """Shows no progress."""


class Move:
    """Migrates one store to another. Both are open, without maintenance."""

    def __init__(self, source: Engine, target: Engine, options: TransferOptions, *, origin: str, goal: str) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._origin = origin
        self._goal = goal
        self.states = CARRIED + (FINAL if options.ended else ())

    def run(self, moved: Moved = _ignore) -> Report:
        away, coming = self._begin()
        if coming.done:
            return Report(was_done=True, notes=[f"it was migrated to {away.target} before"])
        if coming.arrived:  # and was compared; workers may already use the target
            made = Report(queues=self._in_source())
            report.count(made, self._target)
        else:
            made = self._bring(away, coming, moved)
            coming.arrived = True
            progress.save(self._target, coming)
        self._finish(away, coming)
        return made

    # -- begin

    def _begin(self) -> tuple[SourceProgress, TargetProgress]:
        """Read the progress of this migration, or begin it. Nothing is closed yet."""
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
                f"the source was already migrated to {away.target}",
                hint="its messages are there; a second copy would deliver them twice",
            )
        if away.statuses:
            raise InvalidState(
                f"the source is being migrated to {away.target}", hint="continue that, or give it up with --reopen"
            )
        gone = progress.away(self._target)
        if gone is not None:
            raise InvalidState(
                f"the target was itself migrated to {gone.target}: its messages are out of date",
                hint="copy into an empty target, or give that migration up first with --reopen",
            )
        half = progress.begun(self._target)
        if half is not None and self._target.queues():
            raise InvalidState(
                f"the target has the beginning of a migration from {half.origin} that was given up or is not done",
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
        """Record what the target has before anything is copied."""
        target = self._target
        before: dict[str, str | None] = {}
        there = {f"{stats.tenant}/{stats.queue}": sum(stats.counts.values()) for stats in self._all_stats(target)}
        inherited = [f"{d.tenant}/{d.name}" for d in target.all_documents() if d.kind == KIND and is_pattern(d.name)]
        for name in (*there, *inherited):
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

    # -- copy

    def _bring(self, away: SourceProgress, coming: TargetProgress, moved: Moved) -> Report:
        close.close(self._source, away)
        close.wait_until_noticed()  # also if all were closed: the run that closed them may have been killed just now
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
            f"{reader.name} must be registered again at the target: its journal is another one"
            for reader in registered(self._source)
            if reader.name not in (*made.readers, *behind)
        ]
        return made

    def _with_late_messages(self, made: Report) -> list[str]:
        """Queues of the source that have more messages than the last pass has found."""
        found = {queue.name: sum(queue.source.values()) for queue in made.queues}
        return [queue.name for queue in self._in_source() if sum(queue.source.values()) > found.get(queue.name, 0)]

    def _check_quiet(self, made: Report) -> None:
        """Refuse if the source was published to or claimed from since it was copied."""
        late = self._with_late_messages(made)
        if late:
            raise InvalidState(
                f"messages still arrive in {', '.join(late)} of the source, though it is closed",
                hint="stop the publishers and copy again: it continues",
            )
        self._refuse_leases(close.leased(self._source))

    def _wait(self) -> None:
        self._refuse_leases(close.wait_for_leases(self._source, self._options.wait_seconds))

    def _refuse_leases(self, found: dict[str, int]) -> None:
        if found and not self._options.force:
            where = ", ".join(f"{count} in {name}" for name, count in found.items())
            raise InvalidState(
                f"workers still have leases on messages of the source: {where}",
                hint="the queues are closed: wait until the workers have settled and copy again (it continues), "
                "or take the messages from them with --force",
            )

    def _queues(self) -> list[QueueCount]:
        return [QueueCount(tenant, queue) for tenant, queue in self._source.queues()]

    def _in_source(self) -> list[QueueCount]:
        """The queues of the source with its own counts."""
        return [
            QueueCount(stats.tenant, stats.queue, {s: n for s, n in stats.counts.items() if n and s in self.states})
            for stats in self._all_stats(self._source)
        ]

    def _carry(self, away: SourceProgress, made: Report, moved: Moved) -> None:
        """Copy until one pass over the source finds nothing new: messages may change their state during a pass."""
        carrier = MessageTransfer(self._source, self._target, self._origin, into=self._options.into_existing)
        for _ in range(_MOST_PASSES):
            if close.close(self._source, away):  # a slow publisher created a queue
                close.wait_until_noticed()
            made.queues = self._queues()
            new = sum(carrier.carry(queue, self.states, moved) for queue in made.queues)
            made.stored += new
            moved = _ignore
            if not new and not self._with_late_messages(made):
                break
        else:
            raise StorageError("new messages keep arriving in the source", hint="stop all publishers of the source")
        lost = 0
        for tenant in sorted({queue.tenant for queue in made.queues}):
            copied, unknown = carrier.requests(tenant)
            made.requests += copied
            lost += unknown
        if lost:
            made.notes.append(
                f"{lost} idempotency keys of an earlier version are not copied: their messages are gone, and their"
                " queue is unknown"
            )

    def _finish(self, away: SourceProgress, coming: TargetProgress) -> None:
        """Everything is at the target: open it. The source stays closed, and cannot be migrated again."""
        away.done = True
        progress.save(self._source, away)
        statuses = {name: status for name, status in away.statuses.items() if not is_pattern(close.split(name)[1])}
        close.open_again(self._target, (statuses | coming.before).items())
        documents.leave_identity(self._source, coming)
        coming.done = True
        progress.save(self._target, coming)

    def preview(self) -> Report:
        """What there is to copy, without changing anything."""
        made = Report(queues=self._in_source(), dry_run=True)
        made.notes += [f"{name}: {count} messages are leased" for name, count in close.leased(self._source).items()]
        made.documents = sum(document.kind != progress.KIND for document in self._source.all_documents())
        made.notes += [
            f"{name} has not read the journal to its end"
            for name in documents.check_readers(self._source, end_of_journal(self._source), force=True)
        ]
        return made


def reopen(source: Engine, *, force: bool = False) -> list[str]:
    """Give a migration up: the queues of the source get their statuses back. Returns their names."""
    away = progress.away(source)
    if away is None:
        raise InvalidState("this store is not being migrated")
    if away.done and not force:
        raise InvalidState(
            f"this store was migrated to {away.target}: if opened again, it would deliver its messages a second time",
            hint="use that one; or give --force if you throw it away",
        )
    close.open_again(source, away.statuses.items())
    progress.forget_source_progress(source)
    return list(away.statuses)
