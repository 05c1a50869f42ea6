"""Claims that arrive together and want the same are carried out as one, for engines where each costs a round trip.

A worker with many tasks is many callers that take one message each. The first callers get the first messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tampu.engines.port import Call, Claim

MOST = 1000
"""Messages of one claim, so that a statement or script stays short."""
Run = Callable[[Sequence[Call]], list[Any]]


def run_joined(run: Run, calls: Sequence[Call]) -> list[Any]:
    """Carry out fewer calls than were given; the replies are those of the calls given."""
    if len(calls) == 1:
        return run(calls)
    groups = _groups(calls)
    if len(groups) == len(calls):
        return run(calls)
    replies: list[Any] = [None] * len(calls)
    for places, reply in zip(groups, run([_one(calls, places) for places in groups]), strict=True):
        given = 0
        for place in places:
            call = calls[place]
            if len(places) > 1 and isinstance(call, Claim) and isinstance(reply, list):
                replies[place] = reply[given : given + call.limit]
                given += call.limit
            else:
                replies[place] = reply
    return replies


def _groups(calls: Sequence[Call]) -> list[list[int]]:
    """Places of the calls that go together."""
    groups: list[list[int]] = []
    claims: dict[Any, tuple[list[int], int]] = {}
    for place, call in enumerate(calls):
        # Of a limited queue, each claim has its own share; those of several queues go from one to the next.
        if isinstance(call, Claim) and len(call.wants) == 1 and not (call.wants[0].max_in_flight or call.wants[0].rate):
            alike = (call.tenant, call.wants[0], call.worker)
            group, sum_ = claims.get(alike, ([], 0))
            if group and sum_ + call.limit <= MOST:
                group.append(place)
                claims[alike] = (group, sum_ + call.limit)
                continue
            group = [place]
            claims[alike] = (group, call.limit)
            groups.append(group)
        else:
            groups.append([place])
    return groups


def _one(calls: Sequence[Call], places: list[int]) -> Call:
    first = calls[places[0]]
    if len(places) == 1 or not isinstance(first, Claim):
        return first
    limit = sum(call.limit for call in (calls[place] for place in places) if isinstance(call, Claim))
    return Claim(first.tenant, first.wants, limit, first.worker)
