"""gold.slo: how each queue's day stood against its objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tampu.lake.gold_read import Ended
from tampu.lake.objectives import ALL, Objective, burn, effective
from tampu.lake.tables import BY_NAME


def slo(own: Mapping[str, object], ended: Ended, objectives: Sequence[Objective] = ()) -> pa.Table:
    """A row for each objective of each queue in which a message ended that day."""
    held = effective(objectives)
    found = [
        {**own, **_measured(one, queue, ended)} for queue in ended.queues for one in held if _applies(one, queue, held)
    ]
    return pa.Table.from_pylist(found, schema=BY_NAME["gold.slo"].schema)


def _applies(one: Objective, queue: str, held: Sequence[Objective]) -> bool:
    """A queue's own goes before the one for all."""
    if one.queue != ALL:
        return one.queue == queue
    return not any(other.queue == queue and other.objective == one.objective for other in held)


def _measured(one: Objective, queue: str, ended: Ended) -> dict[str, object]:
    done = ended.totals(queue, "done")
    if one.within is None:
        good = len(done)
        total = good + len(ended.totals(queue, "dead")) + len(ended.totals(queue, "expired"))
    else:
        good, total = int((done <= one.within).sum()), len(done)
    return {
        "queue": queue,
        "objective": one.objective,
        "target": one.target,
        "within": one.within,
        "good": good,
        "total": total,
        "ratio": good / total if total else None,
        "burn": burn(good, total, one.target),
    }
