"""How the calls of one commit are carried out, for engines whose verbs take all calls of a kind at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tampu.engines.port import Call, Together
from tampu.engines.units import Names, carry_out_units
from tampu.model.errors import TampuError


class Pages(Protocol):
    def begin_record_group(self) -> None:
        """What follows is journaled after what was so far."""
        ...


def carry_out(
    verbs: Mapping[type[Any], Callable[[Any, Any], Sequence[Any]]], commit: Pages, calls: Sequence[Call], names: Names
) -> list[Any | TampuError]:
    """Each verb once, in the order of ``verbs``, over all calls of its kind; the replies in the order of the calls."""
    if len(calls) == 1 and type(calls[0]) is not Together:
        return list(verbs[type(calls[0])](commit, calls))
    replies: list[Any] = [None] * len(calls)
    by_kind: dict[type[Any], list[int]] = {}
    for i, call in enumerate(calls):
        by_kind.setdefault(type(call), []).append(i)
    if Together in by_kind:
        return carry_out_units(lambda members: carry_out(verbs, commit, members, names), names, commit, calls)
    for kind, verb in verbs.items():
        places = by_kind.get(kind)
        if places:
            for i, reply in zip(places, verb(commit, [calls[i] for i in places]), strict=True):
                replies[i] = reply
            commit.begin_record_group()
    return replies
