"""Why a message is dead. Reasons that users give with `reject` may be any text; these are the ones with a meaning here.

The Redis scripts say the same words; the conformance suite holds every engine to them.
"""

from __future__ import annotations

# Given by the store.
RETRIES_EXHAUSTED = "retries_exhausted"
LEASE_EXPIRED = "lease_expired"
DEADLINE_PASSED = "deadline_passed"
# Given by whoever rejects, and by `reject` itself when no reason is given.
UNRECOVERABLE = "unrecoverable"
# Given by the worker.
DECODE_FAILED = "decode_failed"
RESULT_INVALID = "result_invalid"
UNKNOWN_TASK = "unknown_task"
# Conventional, for rejects of your own.
SCHEMA_INVALID = "schema_invalid"
OVERSIZE = "oversize"

DEAD_LETTER_REASONS = frozenset(
    {
        RETRIES_EXHAUSTED, LEASE_EXPIRED, DEADLINE_PASSED, UNRECOVERABLE, DECODE_FAILED, RESULT_INVALID, UNKNOWN_TASK,
        SCHEMA_INVALID, OVERSIZE,
    }
)  # fmt: skip
OTHER = "other"
"""What reasons of the users' own are summed as where there must be few."""


def bounded(reason: str | None) -> str:
    """One of few words for a reason of `reject`."""
    if reason is None:
        return UNRECOVERABLE
    return reason if reason in DEAD_LETTER_REASONS else OTHER
