"""Which function runs which call, and in which order within a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tampu.engines import port
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.verbs import admin, claim, documents, load, publish, settle, sweep, transfer, trim
from tampu.engines.transfer import Import, StartJournal

# In the order they run within a commit: claims come last, so that they see messages published with them.
VERBS: dict[type[Any], Callable[[Commit, Any], Sequence[Any]]] = {
    StartJournal: transfer.start_journal,
    port.PutDocument: documents.put,
    port.DeleteDocument: documents.delete,
    port.Settle: settle.settle,
    port.Extend: admin.extend,
    port.Publish: publish.publish,
    port.Load: load.load,
    Import: transfer.import_messages,
    port.Cancel: admin.cancel,
    port.Free: admin.free,
    port.Replay: admin.replay,
    port.Purge: trim.purge,
    port.Rerank: admin.rerank,
    port.Regroup: admin.regroup,
    port.Trim: trim.trim,
    port.Sweep: sweep.sweep,
    port.Claim: claim.claim,
}
