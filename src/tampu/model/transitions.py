"""The transition table: which verb leads from which states to which. Engines, docs, lake and tests read it.

The verbs are those of the journal. The state None stands for a message that does not exist, before or after.
"""

from __future__ import annotations

from typing import NamedTuple

from tampu.model.states import FINAL, TERMINAL, WAITING, State

READY, DELAYED, LEASED, HELD = State.READY, State.DELAYED, State.LEASED, State.HELD
DONE, DEAD, CANCELLED, EXPIRED = State.DONE, State.DEAD, State.CANCELLED, State.EXPIRED


class Move(NamedTuple):
    verb: str
    before: tuple[State | None, ...]
    after: tuple[State | None, ...]


# A message that could become ready may instead be held for a slot of its group, or delayed by its group's rate.
TABLE = (
    Move("publish", (None,), WAITING),
    Move("adopt", (None,), (*WAITING, *TERMINAL)),
    *(Move("replace", (state,), (state,)) for state in WAITING),
    Move("promote", (DELAYED,), WAITING),
    Move("free", (HELD,), WAITING),
    Move("claim", (READY,), (LEASED,)),
    Move("ack", (HELD, LEASED), (DONE,)),
    Move("nack", (LEASED,), (*WAITING, DEAD)),
    Move("reject", (*WAITING, LEASED), (DEAD,)),
    Move("release", (LEASED,), WAITING),
    Move("reap", (LEASED,), (*WAITING, DEAD)),
    Move("expire", WAITING, (EXPIRED, DEAD)),
    Move("ask_cancel", (LEASED,), (LEASED,)),
    Move("cancel", (*WAITING, LEASED), (CANCELLED,)),
    Move("replay", (DEAD,), WAITING),
    Move("purge", (*WAITING, DEAD, *FINAL), (None,)),
)
VERBS = tuple(dict.fromkeys(move.verb for move in TABLE))
_PAIRS = frozenset((move.verb, before, after) for move in TABLE for before in move.before for after in move.after)


def allowed(verb: str, before: State | None, after: State | None) -> bool:
    """True if the verb can lead from one state to the other."""
    return (verb, before, after) in _PAIRS


def after(verb: str) -> frozenset[State | None]:
    """The states that the verb leads to."""
    return frozenset(state for move in TABLE if move.verb == verb for state in move.after)


STILL = frozenset(verb for verb in VERBS if all(before == after for name, before, after in _PAIRS if name == verb))
"""The verbs that do not change the state of a message."""
SETTLING = frozenset(verb for verb, before, after in _PAIRS if before is LEASED and after is not LEASED)
"""The verbs that end a lease. A cancel, a reject or an ack may also end a waiting message."""
