"""gold.tenant_days, gold.workers and gold.tasks: a day in one row, by tenant, by worker, by type of message."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tampu.lake.gold_read import Attempts, Ended, Events
from tampu.lake.grouping import counted, extreme, named_percentiles, rows, summed
from tampu.lake.tables import BY_NAME
from tampu.lake.verbs import FAILS


def tenant_days(own: Mapping[str, object], events: Events, attempts: Attempts, ended: Ended) -> pa.Table:
    """Of tenants that had a transition that day."""
    columns = {name: [int(events.of(name).sum())] for name in ("published", "done", "dead", "cancelled", "expired")}
    columns |= {
        "deliveries": [len(attempts)],
        "payload_bytes": [ended.payload_bytes],
        "result_bytes": [ended.result_bytes],
        "queues": [len(events.queues)],
    }
    seconds = [int(attempts.run_micros.sum()) / 1e6]
    found = rows(BY_NAME["gold.tenant_days"].schema, 1, {**own, **columns, "run_seconds": seconds})
    return found.slice(0, 1 if len(events.queues) else 0)


def workers(own: Mapping[str, object], attempts: Attempts) -> pa.Table:
    """Of workers that gave their name."""
    by, size = attempts.worker, len(attempts.workers)
    found = rows(
        BY_NAME["gold.workers"].schema,
        size,
        {
            **own,
            "worker": attempts.workers.all,
            "deliveries": counted(by, size),
            "done": counted(by, size, attempts.outcome("ack")),
            "failed": counted(by, size, attempts.outcome(*FAILS)),
            "lost": counted(by, size, attempts.outcome("reap")),
            "released": counted(by, size, attempts.outcome("release")),
            "run_seconds": summed(by, size, attempts.run_micros) / 1e6,
            **named_percentiles("run", by, size, attempts.run),
            "first_at": extreme(by, size, attempts.claimed, greatest=False),
            "last_at": extreme(by, size, attempts.ended, greatest=True),
        },
    )
    return found.filter(found["worker"].is_valid())


def tasks(own: Mapping[str, object], attempts: Attempts, ended: Ended) -> pa.Table:
    """Deliveries by type; ``dead`` are messages that died that day and have not been replayed since."""
    kinds = max(len(attempts.types), 1)
    keys, by = np.unique(attempts.queue * kinds + attempts.type, return_inverse=True)
    queues = [attempts.queues.all[key // kinds] for key in keys.tolist()]
    types = [attempts.types.all[key % kinds] for key in keys.tolist()]
    size, dead = len(keys), ended.dead()
    deliveries, failed = counted(by, size), counted(by, size, attempts.outcome(*FAILS))
    return rows(
        BY_NAME["gold.tasks"].schema,
        size,
        {
            **own,
            "queue": queues,
            "type": types,
            "deliveries": deliveries,
            "done": counted(by, size, attempts.outcome("ack")),
            "failed": failed,
            "dead": [dead.get(key, 0) for key in zip(queues, types, strict=True)],
            "failure_ratio": failed / np.maximum(deliveries, 1),
            **named_percentiles("wait", by, size, attempts.wait),
            **named_percentiles("run", by, size, attempts.run),
        },
    )
