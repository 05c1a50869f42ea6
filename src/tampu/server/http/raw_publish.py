"""A publish whose body is the payload itself: the fields of the message come as ``Tampu-…`` headers or in the query."""

from __future__ import annotations

import urllib.parse
from datetime import datetime
from typing import Any

import msgspec

from tampu.model.decoders import convert
from tampu.model.errors import InvalidMessage
from tampu.model.message import BYTES, JSON, Encoded, NewMessage, to_new
from tampu.server.http.request import HttpRequest
from tampu.wire.bodies import checked_json

FIELDS = tuple(name for name in NewMessage.__struct_fields__ if name not in ("payload", "content_type"))
"""What may be said of a raw message: ``Tampu-Run-At``, ``?run_at=``; labels and headers are repeated ``name=value``."""
_PAIRS = ("labels", "headers")
HEADERS = frozenset(
    [
        b"idempotency-key",
        b"tampu-tenant",
        b"traceparent",
        *(f"tampu-{name.replace('_', '-')}".encode() for name in FIELDS),
    ]
)
"""The headers that say something of a message, or of who sends it beside its key, or in which trace."""
_HEADER = {f"tampu-{name.replace('_', '-')}".encode(): name for name in FIELDS}


class _Texts(msgspec.Struct, omit_defaults=True):
    """The fields that are not plain text, read leniently: everything in a header is text."""

    delay: float | None = None
    ttl: float | None = None
    priority: int = 0
    max_attempts: int | None = None
    run_at: datetime | None = None
    deadline: datetime | None = None


def message(request: HttpRequest, payload: bytes) -> NewMessage | Encoded:
    given = request.headers.get(b"content-type")
    content_type = BYTES if given is None else _type(given.decode("latin-1"))
    if content_type == JSON:
        checked_json(payload)
    fields = _fields(request)
    return NewMessage(payload, content_type=content_type, **fields) if fields else Encoded(payload, content_type)


def _type(given: str) -> str:
    """JSON is JSON, whatever it says of its characters; UTF-8 it must be."""
    name, _, parameters = given.partition(";")
    if name.strip().lower() == JSON and "charset" in parameters.lower() and "utf-8" not in parameters.lower():
        raise InvalidMessage("JSON is UTF-8", field="content-type")
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
        except ValueError as error:  # also of bytes that are no text
            raise InvalidMessage(f"the query can not be read: {error}", field="query") from None
        for name, value in pairs:
            if name not in FIELDS:
                raise InvalidMessage(f"no such field: {name[:60]}", field="query", hint=f"fields: {', '.join(FIELDS)}")
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
            raise InvalidMessage(f"{name} are name=value", field=name)
        found.setdefault(name, {})[key.strip()] = text
    elif name in found:
        raise InvalidMessage(f"{name} is given twice", field=name)
    else:
        found[name] = value


def keyed(news: list[Any], key: str) -> list[NewMessage]:
    """Messages of a batch under one Idempotency-Key: the same batch again finds each of them."""
    made = []
    for number, new in enumerate(news):
        whole = to_new(new)
        if whole.idempotency_key is not None:
            raise InvalidMessage("a message has an idempotency_key of its own", field="idempotency_key")
        name = f"{key}:{number}" if number else key
        made.append(msgspec.structs.replace(whole, idempotency_key=name))
    return made
