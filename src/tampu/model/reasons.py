"""Why a message is dead. Users may pass any text to `reject`; these are the reasons that tampu itself uses.

The Redis scripts have the same words; the conformance suite checks every engine.
"""

from __future__ import annotations

# Set by the store.
RETRIES_EXHAUSTED = "retries_exhausted"
LEASE_EXPIRED = "lease_expired"
DEADLINE_PASSED = "deadline_passed"
# The default of `reject`.
UNRECOVERABLE = "unrecoverable"
# Set by the worker.
DECODE_FAILED = "decode_failed"
RESULT_INVALID = "result_invalid"
UNKNOWN_TASK = "unknown_task"
# Set by policies.
ROUTING_LOOP = "routing_loop"
REFUSED = "refused"
PARENT_RESULT_GONE = "parent_result_gone"
# Conventional, for your own rejects.
SCHEMA_INVALID = "schema_invalid"
OVERSIZE = "oversize"

DEAD_LETTER_REASONS = frozenset(
    {
        RETRIES_EXHAUSTED, LEASE_EXPIRED, DEADLINE_PASSED, UNRECOVERABLE, DECODE_FAILED, RESULT_INVALID, UNKNOWN_TASK,
        ROUTING_LOOP, REFUSED, PARENT_RESULT_GONE, SCHEMA_INVALID, OVERSIZE,
    }
)  # fmt: skip
OTHER = "other"
"""Stands for all reasons of users, where only few values are allowed, such as labels of metrics."""


def bounded(reason: str | None) -> str:
    """The reason, or `OTHER` for one of a user."""
    if reason is None:
        return UNRECOVERABLE
    return reason if reason in DEAD_LETTER_REASONS else OTHER
