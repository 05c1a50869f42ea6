"""The one error hierarchy, raised alike by every engine, the broker and the command.

Each error has a stable ``code`` for programs, the ``field`` it is about where there is one, and a ``hint``
that says what to do. Nothing here knows where the error came from.
"""

from __future__ import annotations


class TampuError(Exception):
    """Anything tampu refuses or can not do."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidMessage(TampuError):
    """A message, or another argument, that is not of the form it must have."""

    code = "invalid_message"


class InvalidConfig(TampuError):
    """A queue setting, url or option that is not of the form it must have."""

    code = "invalid_config"


class PayloadTooLarge(InvalidMessage):
    """The encoded payload is over the queue's ``max_payload``."""

    code = "payload_too_large"


class NotFound(TampuError):
    """No such message or queue in this tenant."""

    code = "not_found"


class QueueFull(TampuError):
    """The queue holds ``max_depth`` messages that have not ended; nothing of the batch was stored."""

    code = "queue_full"


class QueueClosed(TampuError):
    """The queue is draining or closed: it takes no new messages."""

    code = "queue_closed"


class LeaseLost(TampuError):
    """The receipt is not the current lease of its message: nothing was changed."""

    code = "lease_lost"


class InvalidState(TampuError):
    """The message is in a state from which this can not be done."""

    code = "invalid_state"


class IdempotencyConflict(TampuError):
    """The idempotency key was used within its window for a message with another body."""

    code = "idempotency_conflict"


class VersionConflict(TampuError):
    """A document was changed by somebody else in between."""

    code = "version_conflict"


class RateLimited(TampuError):
    """Too much in too short a time; ``retry_after`` says when to come back, in seconds."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Forbidden(TampuError):
    """The caller may not do this."""

    code = "forbidden"


class Unauthorized(Forbidden):
    """The caller did not say who it is, or not with a key that holds."""

    code = "unauthorized"


class StorageError(TampuError):
    """The store could not carry the call out; nothing of it took effect."""

    code = "storage_error"


class StorageFull(StorageError):
    """No room left on the disk; nothing of the call took effect, and it works again when there is room."""

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
    """The store can not be reached, is locked for too long, or was closed."""

    code = "unavailable"
