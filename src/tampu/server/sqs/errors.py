"""Errors as SQS names them: a code of the JSON protocol, one of the query protocol, a status, and whose fault it is."""

from __future__ import annotations

from tampu.model import errors
from tampu.model.errors import TampuError

_PREFIX = "AWS.SimpleQueueService."
_OLD_NAMES = {
    "QueueDoesNotExist": f"{_PREFIX}NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "MessageNotInflight": f"{_PREFIX}MessageNotInflight",
    "BatchEntryIdsNotDistinct": f"{_PREFIX}BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": f"{_PREFIX}BatchRequestTooLong",
    "EmptyBatchRequest": f"{_PREFIX}EmptyBatchRequest",
    "InvalidBatchEntryId": f"{_PREFIX}InvalidBatchEntryId",
    "TooManyEntriesInBatchRequest": f"{_PREFIX}TooManyEntriesInBatchRequest",
    "PurgeQueueInProgress": f"{_PREFIX}PurgeQueueInProgress",
    "UnsupportedOperation": f"{_PREFIX}UnsupportedOperation",
}
"""The names that errors have in the query protocol, and for SDKs in ``x-amzn-query-error``; others have one name."""


class SqsError(Exception):
    """An error with its code, such as ``QueueDoesNotExist``, and the HTTP status that AWS gives it."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status

    @property
    def query_code(self) -> str:
        return _OLD_NAMES.get(self.code, self.code)

    @property
    def is_senders(self) -> bool:
        """True if the request is at fault, not the server."""
        return self.status < 500


def no_queue() -> SqsError:
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def invalid(message: str) -> SqsError:
    return SqsError("InvalidParameterValue", message)


def missing(name: str) -> SqsError:
    return SqsError("MissingParameter", f"The request must contain the parameter {name}.")


_KINDS: tuple[tuple[type[TampuError], str, int], ...] = (
    (errors.Unauthorized, "InvalidClientTokenId", 403),
    (errors.Forbidden, "AccessDenied", 403),
    (errors.NotFound, "QueueDoesNotExist", 400),
    (errors.RateLimited, "RequestThrottled", 403),
    (errors.QueueFull, "OverLimit", 403),
    (errors.QueueClosed, "UnsupportedOperation", 400),
    (errors.LeaseLost, "ReceiptHandleIsInvalid", 400),
    (errors.InvalidConfig, "InvalidAttributeValue", 400),
    (errors.InvalidMessage, "InvalidParameterValue", 400),
    (errors.StorageError, "ServiceUnavailable", 503),
    (errors.TampuError, "InvalidParameterValue", 400),
)


def of(error: TampuError) -> SqsError:
    """The SQS error for an error of tampu; its text keeps the remedy."""
    code, status = next((code, status) for kind, code, status in _KINDS if isinstance(error, kind))
    return SqsError(code, str(error), status)
