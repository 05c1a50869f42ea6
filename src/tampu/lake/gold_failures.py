"""gold.failures: attempts that failed alike, by queue."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.gold_read import Attempts, Events
from tampu.lake.grouping import rows
from tampu.lake.tables import BY_NAME

SAMPLES = 5
_ALIKE = ["queue", "look"]


def failures(own: Mapping[str, object], events: Events, attempts: Attempts) -> pa.Table:
    """One row per look of an error. Failures that gave none are told apart by how they ended: ``nack``, ``reap``.

    The journal says what failed, the deliveries say of which type the message was.
    """
    failed = events.failures
    lost = pc.equal(failed["verb"], "reap")
    nothing = pa.scalar(None, pa.string())
    look = pc.if_else(lost, "reap", pc.coalesce(failed["fingerprint"], failed["verb"]))
    failed = failed.append_column("look", look).append_column("error", pc.if_else(lost, nothing, failed["detail"]))
    failed = failed.append_column("died", pc.fill_null(pc.equal(failed["state"], "dead"), False).cast(pa.int64()))
    order = [(name, "ascending") for name in (*_ALIKE, "at", "partition", "offset")]
    groups = (
        failed.sort_by(order)
        .group_by(_ALIKE, use_threads=False)
        .aggregate([("at", "min"), ("at", "last"), ("error", "last"), ("died", "sum"), ([], "count_all")])
    )
    samples, messages = _messages(failed)
    types = attempts.failed_types()
    alike = list(zip(groups["queue"].to_pylist(), groups["look"].to_pylist(), strict=True))
    return rows(
        BY_NAME["gold.failures"].schema,
        groups.num_rows,
        {
            **own,
            "queue": groups["queue"],
            "fingerprint": groups["look"],
            "error": groups["error_last"],
            "attempts": groups["count_all"],
            "messages": [messages[key] for key in alike],
            "dead": groups["died_sum"],
            "types": [sorted(types.get(key, ())) for key in alike],
            "first_at": groups["at_min"],
            "last_at": groups["at_last"],
            "sample_ids": [samples[key] for key in alike],
        },
    )


def _messages(failed: pa.Table) -> tuple[dict[tuple[str, str], list[str]], dict[tuple[str, str], int]]:
    """By look: the first few ids in their order, and how many messages there are."""
    ids = failed.group_by([*_ALIKE, "id"]).aggregate([]).sort_by([(name, "ascending") for name in (*_ALIKE, "id")])
    counts = ids.group_by(_ALIKE, use_threads=False).aggregate([([], "count_all")])
    samples, messages, start = {}, {}, 0
    for row in counts.to_pylist():
        key = (row["queue"], row["look"])
        samples[key] = ids["id"].slice(start, min(SAMPLES, row["count_all"])).to_pylist()
        messages[key] = row["count_all"]
        start += row["count_all"]
    return samples, messages
