"""The verbs of the journal and the states, by what they mean for silver and gold."""

from __future__ import annotations

from tampu.model import states, transitions

SETTLES = transitions.SETTLING
MOVES = frozenset(transitions.VERBS) - transitions.STILL
"""Verbs that change the state of a message; an adoption only where the message was in another one, or unknown."""
STANDS = transitions.STILL
"""Verbs that leave the message where it is. A verb in neither set is a later version's, and is passed over."""
FAILS = frozenset(("nack", "reject", "reap"))
LIVE = frozenset(map(str, states.LIVE))
ENDS = frozenset(map(str, states.TERMINAL))
