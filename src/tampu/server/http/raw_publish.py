"""A publish whose body is the payload: the other fields are ``Tampu-…`` headers or query parameters."""

from __future__ import annotations

import urllib.parse
from datetime import datetime
from typing import Any

import msgspec

from tampu.model.decoders import convert
from tampu.model.errors import InvalidMessage
from tampu.model.message import BYTES, JSON, Encoded, NewMessage, to_new
from tampu.server.http.request import HttpRequest
from tampu.wire.media import UnsupportedMedia, decode_part

FORM = "application/x-www-form-urlencoded"
FIELDS = tuple(name for name in NewMessage.__struct_fields__ if name not in ("payload", "content_type"))
"""The fields: ``Tampu-Run-At`` or ``?run_at=``, for example. Labels and headers are repeated, as ``name=value``."""
_PAIRS = ("labels", "headers")
HEADERS = frozenset(
    [
        b"idempotency-key",
        b"tampu-tenant",
        b"traceparent",
        *(f"tampu-{name.replace('_', '-')}".encode() for name in FIELDS),
    ]
)
"""Request headers that change the message, its tenant or its trace. A request with one has no fast route."""
_HEADER = {f"tampu-{name.replace('_', '-')}".encode(): name for name in FIELDS}


class _Texts(msgspec.Struct, omit_defaults=True):
    """The fields that are not text. Headers are text, so numbers and times are converted."""

    delay: float | None = None
    ttl: float | None = None
    priority: int = 0
    max_attempts: int | None = None
    run_at: datetime | None = None
    deadline: datetime | None = None


def message(request: HttpRequest, payload: bytes, most: int) -> NewMessage | Encoded:
    given = request.headers.get(b"content-type")
    content_type = BYTES if given is None else _type(given.decode("latin-1"))
    if content_type == JSON:
        decode_part(payload, JSON, most, "payload")
    fields = _fields(request)
    return NewMessage(payload, content_type=content_type, **fields) if fields else Encoded(payload, content_type)


def _type(given: str) -> str:
    """The content type without the parameters of JSON; JSON must be UTF-8."""
    name, _, parameters = given.partition(";")
    if name.strip().lower() == FORM:
        raise UnsupportedMedia(
            "a form is not a payload",
            field="content-type",
            hint="send -H 'content-type: application/json': curl -d sends a form otherwise",
        )
    if name.strip().lower() == JSON and "charset" in parameters.lower() and "utf-8" not in parameters.lower():
        raise InvalidMessage("JSON must be UTF-8", field="content-type")
    return JSON if name.strip().lower() == JSON else given.strip()


def _fields(request: HttpRequest) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in request.scope["headers"]:
        if name in _HEADER:
            _add(found, _HEADER[name], value.decode("latin-1"))
        elif name == b"idempotency-key":
            _add(found, "idempotency_key", value.decode("latin-1"))
    query: bytes = request.scope["query_string"]
    if query:
        try:
            pairs = urllib.parse.parse_qsl(
                query.decode("ascii"), keep_blank_values=True, max_num_fields=200, errors="strict"
            )
        except ValueError as error:  # also for bytes that are not text
            raise InvalidMessage(f"cannot read the query: {error}", field="query") from None
        for name, value in pairs:
            if name not in FIELDS:
                raise InvalidMessage(f"unknown field: {name[:60]}", field="query", hint=f"fields: {', '.join(FIELDS)}")
            _add(found, name, value)
    if not found:
        return found
    lenient = {name: found[name] for name in _Texts.__struct_fields__ if name in found}
    try:
        read = convert(lenient, _Texts, strict=False)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].strip("`")
        raise InvalidMessage(str(error), field=name) from None
    return {**found, **{name: getattr(read, name) for name in lenient}}


def _add(found: dict[str, Any], name: str, value: str) -> None:
    if name in _PAIRS:
        key, separator, text = value.partition("=")
        if not separator:
            raise InvalidMessage(f"{name} must be given as name=value", field=name)
        found.setdefault(name, {})[key.strip()] = text
    elif name in found:
        raise InvalidMessage(f"{name} is given twice", field=name)
    else:
        found[name] = value


def keyed(news: list[Any], key: str) -> list[NewMessage]:
    """Give each message of a batch its own key, derived from one Idempotency-Key, so that a repeat finds them."""
    result = []
    for number, new in enumerate(news):
        whole = to_new(new)
        if whole.idempotency_key is not None:
            raise InvalidMessage(
                "the batch and a message both have an idempotency key", field="idempotency_key", hint="use only one"
            )
        name = f"{key}:{number}" if number else key
        result.append(msgspec.structs.replace(whole, idempotency_key=name))
    return result
