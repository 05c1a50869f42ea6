"""The verbs of the journal and the states, by what they mean for silver and gold."""

from __future__ import annotations

_ENTERS = ("publish", "adopt", "promote", "free", "replay")
SETTLES = frozenset(("ack", "nack", "reject", "release", "reap", "cancel"))
"""Verbs that end a delivery (a cancel may end a message that only waits, too)."""
MOVES = frozenset((*_ENTERS, "claim", *SETTLES, "expire", "purge"))
"""Verbs that change the state of a message; an adoption only where the message was in another one, or unknown."""
STANDS = frozenset(("replace", "ask_cancel"))
"""Verbs that leave the message where it is. A verb in neither set is a later version's, and is passed over."""
FAILS = frozenset(("nack", "reject", "reap"))
LIVE = frozenset(("ready", "delayed", "leased", "held"))
ENDS = frozenset(("done", "dead", "cancelled", "expired"))
