"""Opens images of a lost disk with the real engine and says what is wrong with them."""

from __future__ import annotations

import functools
import random
import shutil
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import tampu
from tampu.broker.core import Core
from tampu.engines.sqlite import SqliteEngine
from tests.faults.history import Clock, History, Moment, contents
from tests.faults.images import FATES, Platter


@dataclass
class Report:
    problems: list[str] = field(default_factory=list)
    images: int = 0
    forgotten: int = 0
    """Images in which a claim that was under way had not happened."""


def losses(history: History, folder: Path, seed: int, points: Iterable[int], fates: tuple[str, ...] = FATES) -> Report:
    """Cut the power at each of these places in the log, leave the disk in each of these ways; what went wrong."""
    rng = random.Random(seed)
    platter = Platter()
    report = Report()
    wanted = sorted(set(points))
    done = 0
    for point in wanted:
        for event in history.disk.events[done:point]:
            platter.step(event)
        done = point
        for n, fate in enumerate(fates):
            image = folder / "image"
            image.mkdir()
            platter.image(image, fate, rng)
            try:
                problem = examine(history, image / "jobs.db", point, rng, report)
            except (tampu.TampuError, AssertionError) as error:
                problem = f"{type(error).__name__}: {error}"
            finally:
                shutil.rmtree(image)
            report.images += 1
            if problem:
                report.problems.append(f"seed {seed}, power lost at event {point}, image {n} ({fate}): {problem}")
    return report


def examine(history: History, path: Path, point: int, rng: random.Random, report: Report) -> str | None:
    """Open the file; what of the promises it breaks, if any."""
    engine = SqliteEngine(str(path), clock=Clock())
    opened = _Opened(engine)
    try:
        damage = engine._db.execute("PRAGMA integrity_check").fetchall()
        if damage != [("ok",)]:
            return f"damaged: {damage}"
        bad = [finding for finding in engine.check() if finding[1] == "bad"]
        if bad:
            return f"check: {bad}"
        if point >= history.opened:
            problem = _state(history, opened, point, report)
            if problem:
                return problem
        return _goes_on(history, opened.store) if rng.random() < 0.1 else None
    finally:
        engine.close()


class _Opened:
    """An image under test; most need no more than the engine."""

    def __init__(self, engine: SqliteEngine) -> None:
        self.engine = engine

    @functools.cached_property
    def store(self) -> tampu.Store:
        return tampu.Store(Core(self.engine), "default", on_close=self.engine.close)


def _state(history: History, opened: _Opened, point: int, report: Report) -> str | None:
    """Everything acknowledged is there, but perhaps not the last extensions; of the call under way all or nothing."""
    moments = history.moments
    last = bisect_right([m.ended for m in moments], point) - 1
    under_way = moments[last + 1] if last + 1 < len(moments) and moments[last + 1].began <= point else None
    found = contents(opened.engine._db)
    if under_way is not None and found == under_way.state:
        return None
    kept = last
    while kept and found != moments[kept].state and _may_be_lost(moments[kept], moments[kept - 1]):
        kept -= 1
    if found != moments[kept].state:
        older = [n for n, m in enumerate(moments) if m.state == found]
        return (
            f"acknowledged {last} ({moments[last].verb}), under way {under_way.verb if under_way else None};"
            f" found {f'the state after call {older[-1]}' if older else 'a state that never was'}"
        )
    if under_way is None or not under_way.receipts:
        return None
    report.forgotten += 1
    return _fenced(opened, under_way)


def _may_be_lost(moment: Moment, before: Moment) -> bool:
    """Extensions of leases do not wait for the disk, and a call that changed nothing has nothing to wait for."""
    return moment.verb == "extend" or moment.state == before.state


def _fenced(opened: _Opened, claim: Moment) -> str | None:
    """The crash forgot a claim: nobody may use its receipts."""
    store, db = opened.store, opened.engine._db
    before = contents(db)
    for settlement in (tampu.Ack, tampu.Nack, tampu.Reject, tampu.Release):
        outcomes = store.settle([settlement(receipt) for receipt in claim.receipts])
        if not all(isinstance(outcome.error, tampu.LeaseLost) for outcome in outcomes):
            return f"receipts of a forgotten claim were taken: {outcomes}"
    for receipt in claim.receipts:
        try:
            store.extend(receipt, 60)
        except tampu.LeaseLost:
            continue
        return f"{receipt} of a forgotten claim was extended"
    return None if contents(db) == before else "a stale receipt changed something"


def _goes_on(history: History, store: tampu.Store) -> str | None:
    """The file works as before, and no receipt comes twice."""
    message = store.publish("afterwards", 1)
    leases = store.claim(["afterwards", "a", "b"], limit=50)
    if leases[0].id != message.id:
        return "what was published after the crash was not delivered"
    again = history.receipts.intersection(lease.receipt for lease in leases)
    if again:
        return f"receipts given out twice: {again}"
    store.settle([tampu.Ack(lease) for lease in leases])
    return None if store.get(message.id).state == "done" else "an ack after the crash was not kept"
