"""The verbs of the journal and the states of messages, by what they mean for silver and gold, as lists for SQL."""

from __future__ import annotations

from collections.abc import Iterable

from tampu.model import states, transitions


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(quoted(str(word)) for word in sorted(words))


MOVES = _listed(frozenset(transitions.VERBS) - transitions.STILL)
"""Verbs that change the state of a message; an adoption only where the message was in another one, or unknown."""
KNOWN = _listed(frozenset(transitions.VERBS) | transitions.STILL)
"""A verb that is not among these is a later version's, and is passed over."""
SETTLES = _listed(transitions.SETTLING)
FAILS = _listed(("nack", "reject", "reap"))
LIVE = _listed(states.LIVE)
ENDS = _listed(states.TERMINAL)
