"""Which file carries out which call, and in which order within a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tampu.engines import port
from tampu.engines.postgres import claim, documents, loading, publish, settle, steering, sweep, trimming
from tampu.engines.postgres.commit import Commit
from tampu.model.errors import TampuError

# Verbs in the order they run within a commit: claims come last, so they see what arrives with them.
_VERBS: tuple[tuple[type[Any], Callable[[Commit, Any], Sequence[Any]]], ...] = (
    (port.PutDocument, documents.put),
    (port.DeleteDocument, documents.delete),
    (port.Settle, settle.settle),
    (port.Extend, steering.extend),
    (port.Publish, publish.publish),
    (port.Load, loading.load),
    (port.Cancel, steering.cancel),
    (port.Free, steering.free),
    (port.Replay, steering.replay),
    (port.Purge, trimming.purge),
    (port.Rerank, steering.rerank),
    (port.Trim, trimming.trim),
    (port.Sweep, sweep.sweep),
    (port.Claim, claim.claim),
)
_BY_KIND = dict(_VERBS)


def carry_out(commit: Commit, calls: Sequence[port.Call]) -> list[Any | TampuError]:
    """Each verb once, over all calls of its kind; the replies in the order of the calls."""
    if len(calls) == 1:
        return list(_BY_KIND[type(calls[0])](commit, calls))
    replies: list[Any] = [None] * len(calls)
    by_kind: dict[type[Any], list[int]] = {}
    for i, call in enumerate(calls):
        by_kind.setdefault(type(call), []).append(i)
    for kind, verb in _VERBS:
        places = by_kind.get(kind)
        if places:
            for i, reply in zip(places, verb(commit, [calls[i] for i in places]), strict=True):
                replies[i] = reply
            commit.turn_page()
    return replies
