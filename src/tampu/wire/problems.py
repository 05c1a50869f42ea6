"""Errors as problem details (RFC 9457) with a stable code, and the conversion back to exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tampu.model import errors
from tampu.model.decoders import from_json
from tampu.model.errors import RateLimited, StorageError, TampuError, Unavailable
from tampu.wire.media import UnsupportedMedia

PROBLEM = "application/problem+json"


class Problem(msgspec.Struct, omit_defaults=True):
    """Why a request was refused."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    hint: str | None = None
    request_id: str | None = None
    retry_after: float | None = None


class ItemError(msgspec.Struct, omit_defaults=True, frozen=True):
    """Why one item of a batch was refused; the item is unchanged."""

    code: str
    message: str
    field: str | None = None
    hint: str | None = None


class RequestTimeout(TampuError):
    """The request did not arrive in time."""

    code = "request_timeout"


class HeadersTooLarge(TampuError):
    """The request headers are over the limit."""

    code = "headers_too_large"


class MethodNotAllowed(TampuError):
    """The route does not support this method."""

    code = "method_not_allowed"


class Internal(TampuError):
    """A bug in the server. Its log has the details under the request id."""

    code = "internal"


STATUS: dict[str, int] = {
    "error": 400,
    "invalid_message": 400,
    "invalid_config": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "invalid_state": 409,
    "lease_lost": 409,
    "queue_closed": 409,
    "version_conflict": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "idempotency_conflict": 422,
    "queue_full": 429,
    "rate_limited": 429,
    "headers_too_large": 431,
    "internal": 500,
    "storage_error": 503,
    "foreign_file": 503,
    "damaged_file": 503,
    "schema_mismatch": 503,
    "unavailable": 503,
    "storage_full": 507,
}
_RETRY_AFTER = {"queue_full": 1.0, "unavailable": 1.0, "version_conflict": 0.1}


def _classes(kind: type[TampuError]) -> Iterator[type[TampuError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _classes(subclass)


_OURS = {errors.__name__, UnsupportedMedia.__module__, __name__}
BY_CODE: dict[str, type[TampuError]] = {kind.code: kind for kind in _classes(TampuError) if kind.__module__ in _OURS}


def status_of(error: TampuError) -> int:
    known = STATUS.get(error.code)
    if known is not None:
        return known
    for kind in type(error).__mro__:  # an error class that is not listed has the status of its base class
        known = STATUS.get(getattr(kind, "code", ""))
        if known is not None:
            return known
    return 400


def problem(error: TampuError, request_id: str | None = None) -> Problem:
    retry_after = error.retry_after if isinstance(error, RateLimited) else _RETRY_AFTER.get(error.code)
    return Problem(
        type=f"urn:tampu:error:{error.code}",
        title=error.code.replace("_", " ").capitalize(),
        status=status_of(error),
        detail=clean(error.message),
        code=error.code,
        field=error.field,
        hint=error.hint,
        request_id=request_id,
        retry_after=retry_after,
    )


def clean(text: str) -> str:
    """Escape what cannot be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def item_error(error: TampuError) -> ItemError:
    return ItemError(error.code, clean(error.message), error.field, error.hint)


def make_error(
    code: str, message: str, field: str | None, hint: str | None, retry_after: float | None = None
) -> TampuError:
    """The exception for an error code."""
    kind = BY_CODE.get(code)
    if kind is RateLimited:
        return RateLimited(message, retry_after=retry_after, hint=hint)
    error = (kind or TampuError)(message, field=field, hint=hint)
    if kind is None:
        error.code = code  # sent by a newer server
    return error


_PROBLEM: msgspec.json.Decoder[Problem] = from_json(Problem)


def from_answer(status: int, body: bytes) -> TampuError:
    """The exception for an error response."""
    try:
        reply = _PROBLEM.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = f"the server answered {status}: {body[:200].decode('utf-8', 'replace')}"
        return Unavailable(text) if status >= 500 else TampuError(text, hint="check that the url is a tampu server")
    error = make_error(reply.code, reply.detail, reply.field, reply.hint, reply.retry_after)
    if status >= 500 and not isinstance(error, StorageError):
        return Unavailable(f"{reply.detail} (request {reply.request_id})")
    return error


def of_item(item: ItemError | None) -> Any:
    return None if item is None else make_error(item.code, item.message, item.field, item.hint)
