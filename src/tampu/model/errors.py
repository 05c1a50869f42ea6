"""All errors of tampu. Every engine, the broker and the HTTP client raise the same ones.

Each has a stable ``code`` for programs, the ``field`` that it is about, if any, and a ``hint`` that says what to do.
"""

from __future__ import annotations


class TampuError(Exception):
    """Base class of all errors."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidMessage(TampuError):
    """A message or another argument is invalid."""

    code = "invalid_message"


class InvalidConfig(TampuError):
    """A queue setting, url or option is invalid."""

    code = "invalid_config"


class PayloadTooLarge(InvalidMessage):
    """The encoded payload is larger than the queue's ``max_payload``."""

    code = "payload_too_large"


class NotFound(TampuError):
    """No such message or queue in this tenant."""

    code = "not_found"


class QueueFull(TampuError):
    """The queue has ``max_depth`` live messages; nothing of the batch was stored."""

    code = "queue_full"


class QueueClosed(TampuError):
    """The queue is draining or closed: it takes no new messages."""

    code = "queue_closed"


class LeaseLost(TampuError):
    """The receipt is not that of the current lease of its message; nothing was changed."""

    code = "lease_lost"


class InvalidState(TampuError):
    """This cannot be done in the current state of the message or object."""

    code = "invalid_state"


class IdempotencyConflict(TampuError):
    """The idempotency key was used within its window for a message with another body."""

    code = "idempotency_conflict"


class VersionConflict(TampuError):
    """A document was changed meanwhile by another caller."""

    code = "version_conflict"


class RateLimited(TampuError):
    """Too many requests; try again after ``retry_after`` seconds."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Forbidden(TampuError):
    """The caller may not do this."""

    code = "forbidden"


class Unauthorized(Forbidden):
    """The caller gave no key, or an invalid or revoked one."""

    code = "unauthorized"


class StorageError(TampuError):
    """The store could not carry out the call; nothing of it took effect."""

    code = "storage_error"


class StorageFull(StorageError):
    """The disk is full. Nothing of the call took effect; it works again when there is space."""

    code = "storage_full"


class ForeignFile(StorageError):
    """The file is not a tampu file; it was left as it is."""

    code = "foreign_file"


class DamagedFile(StorageError):
    """The file is damaged; it was left as it is."""

    code = "damaged_file"


class SchemaMismatch(StorageError):
    """The file was written by a newer tampu than this one."""

    code = "schema_mismatch"


class Unavailable(StorageError):
    """The store cannot be reached, was locked for too long, or is closed."""

    code = "unavailable"
