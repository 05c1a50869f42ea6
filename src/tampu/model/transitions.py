"""The transition table: which verb leads from which states to which. Docs, lake and tests read it here.

The verbs are those of the journal. ``None`` stands for a message that is not there: not yet, or no more.
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


# Where a message may become ready, it may be held for its group's turn, or delayed until its group's rate allows it.
TABLE = (
    Move("publish", (None,), WAITING),
    Move("adopt", (None,), (*WAITING, *TERMINAL)),
    *(Move("replace", (state,), (state,)) for state in WAITING),
    Move("promote", (DELAYED,), WAITING),
    Move("free", (HELD,), WAITING),
    Move("claim", (READY,), (LEASED,)),
    Move("ack", (LEASED,), (DONE,)),
    Move("nack", (LEASED,), (*WAITING, DEAD)),
    Move("reject", (LEASED,), (DEAD,)),
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
"""The verbs that leave a message in its state."""
SETTLING = frozenset(verb for verb, before, after in _PAIRS if before is LEASED and after is not LEASED)
"""The verbs that end a delivery. A cancel may also end a message that only waits."""
