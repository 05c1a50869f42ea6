"""What carries out each call of the port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tampu.engines import port
from tampu.engines.kept import Adopt, StartJournal
from tampu.engines.sqlite import adopting, claim, documents, loading, publish, settle, steering, sweep, trimming
from tampu.engines.sqlite.commit import Commit

# Verbs in the order they run within a commit: claims come last, so they see what arrives with them.
VERBS: dict[type[Any], Callable[[Commit, Any], Sequence[Any]]] = {
    StartJournal: adopting.start_journal,
    port.PutDocument: documents.put,
    port.DeleteDocument: documents.delete,
    port.Settle: settle.settle,
    port.Extend: steering.extend,
    port.Publish: publish.publish,
    port.Load: loading.load,
    Adopt: adopting.adopt,
    port.Cancel: steering.cancel,
    port.Free: steering.free,
    port.Replay: steering.replay,
    port.Purge: trimming.purge,
    port.Rerank: steering.rerank,
    port.Regroup: steering.regroup,
    port.Trim: trimming.trim,
    port.Sweep: sweep.sweep,
    port.Claim: claim.claim,
}
