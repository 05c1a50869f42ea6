"""Merge equal claims that arrive together, for engines where each claim costs a round trip.

A worker with many tasks makes many claims of one message each. The first callers get the first messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tampu.engines.port import Call, Claim

MOST = 1000
"""Messages of a merged claim, so that a statement or script runs only briefly."""
Run = Callable[[Sequence[Call]], list[Any]]


def run_joined(run: Run, calls: Sequence[Call]) -> list[Any]:
    """Run the calls with equal claims merged. Returns one reply for each given call."""
    groups = _groups(calls)
    if len(groups) == len(calls):
        return run(calls)
    replies: list[Any] = [None] * len(calls)
    for indexes, reply in zip(groups, run([_merge(calls, indexes) for indexes in groups]), strict=True):
        given = 0
        for index in indexes:
            call = calls[index]
            if len(indexes) > 1 and isinstance(call, Claim) and isinstance(reply, list):
                replies[index] = reply[given : given + call.limit]
                given += call.limit
            else:
                replies[index] = reply
    return replies


def _groups(calls: Sequence[Call]) -> list[list[int]]:
    """Indexes of the calls that are merged."""
    groups: list[list[int]] = []
    claims: dict[Any, tuple[list[int], int]] = {}
    for index, call in enumerate(calls):
        # Not for queues with limits, which hold for each claim, and not for claims of several queues.
        if isinstance(call, Claim) and len(call.wants) == 1 and not (call.wants[0].max_in_flight or call.wants[0].rate):
            alike = (call.tenant, call.wants[0], call.worker)
            group, sum_ = claims.get(alike, ([], 0))
            if group and sum_ + call.limit <= MOST:
                group.append(index)
                claims[alike] = (group, sum_ + call.limit)
                continue
            group = [index]
            claims[alike] = (group, call.limit)
            groups.append(group)
        else:
            groups.append([index])
    return groups


def _merge(calls: Sequence[Call], indexes: list[int]) -> Call:
    first = calls[indexes[0]]
    if len(indexes) == 1 or not isinstance(first, Claim):
        return first
    limit = sum(call.limit for call in (calls[index] for index in indexes) if isinstance(call, Claim))
    return Claim(first.tenant, first.wants, limit, first.worker)
