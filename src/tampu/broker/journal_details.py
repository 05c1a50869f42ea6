"""Type and correlation id of the messages of transitions.

The journal has the type at publish only, and the correlation id nowhere: the body has both, and never changes. So they
are looked up for readers that ask for them, and cost the others nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from tampu.engines.port import Engine
from tampu.model.journal import Transition


class Details(NamedTuple):
    type: str
    correlation_id: str | None


Names = tuple[str, str]
"""(tenant, id) of a message."""


def look_up(engine: Engine, wanted: Iterable[Names]) -> dict[Names, Details]:
    """What the messages say that still exist."""
    found: dict[Names, Details] = {}
    for tenant, id in wanted:
        message = engine.get(tenant, id)
        if message is not None:
            found[tenant, id] = Details(message.type, message.correlation_id)
    return found


def names(transitions: Iterable[Transition]) -> dict[Names, None]:
    """The messages of transitions, each once, in order."""
    return dict.fromkeys((transition.tenant, transition.id) for transition in transitions)


def added(transitions: Sequence[Transition], known: dict[Names, Details]) -> list[Transition]:
    """The transitions with what is known of their messages."""
    made = []
    for transition in transitions:
        details = known.get((transition.tenant, transition.id))
        if details is not None:
            transition = msgspec.structs.replace(  # noqa: PLW2901 - the same one, with more
                transition, type=details.type, correlation_id=details.correlation_id
            )
        made.append(transition)
    return made
