"""Which function runs which call, and in which order within a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tampu.engines import port
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.verbs import admin, claim, documents, load, publish, settle, sweep, transfer, trim
from tampu.engines.transfer import Import, StartJournal
from tampu.model.errors import TampuError

Verb = Callable[[Commit, Any], Sequence[Any]]


def each(verb: Callable[[Any, Any], Any], locks: Callable[[Any], Iterable[bytes]] | None = None) -> Verb:
    """Runs a verb once for each call. A call that it refuses, before it has written anything, does not affect others.

    ``locks`` are the locks of a call. Those of all calls are taken first, in one order.
    """

    def run(commit: Commit, calls: Sequence[Any]) -> list[Any | TampuError]:
        if locks is not None:
            commit.locks.take(name for call in calls for name in locks(call))
        replies: list[Any | TampuError] = []
        for call in calls:
            try:
                replies.append(verb(commit, call))
            except TampuError as error:
                replies.append(error)
        return replies

    return run


# In the order they run within a commit: claims come last, so that they see messages published with them.
VERBS: dict[type[Any], Verb] = {
    StartJournal: each(transfer.start_journal),
    port.PutDocument: documents.put,
    port.DeleteDocument: documents.delete,
    port.Settle: settle.settle,
    port.Extend: admin.extend,
    port.Publish: publish.publish,
    port.Load: each(load.load, load.locks),
    Import: each(transfer.import_messages, transfer.locks),
    port.Cancel: each(admin.cancel),
    port.Free: each(admin.free),
    port.Replay: each(admin.replay),
    port.UndoReplay: each(admin.undo_replay),
    port.Purge: each(trim.purge),
    port.Remove: each(trim.remove),
    port.Rerank: each(admin.rerank),
    port.Regroup: each(admin.regroup),
    port.Trim: each(trim.trim),
    port.Sweep: sweep.sweep,
    port.Claim: claim.claim,
}
