"""Deliveries of webhooks: messages of the system queue ``_tampu.webhooks``, one queue for each tenant."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

import msgspec

from tampu.model.config import WEBHOOKS
from tampu.model.definitions import Webhook
from tampu.model.errors import InvalidConfig
from tampu.model.message import NewMessage

QUEUE = WEBHOOKS
TENANTS = ("webhook_tenant", "*")
"""Kind and tenant of the documents that name the tenants which have webhooks."""
MOST_BYTES = 128 * 1024
"""Of one delivery."""
_MOST_URL = 2000
_MOST_HEADERS = 20
_MOST_VALUE = 1000
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_VALUE = re.compile(r"[\t\x20-\x7e]*\Z")
_OURS = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding", "expect", "upgrade"})


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a message in the queue."""

    url: str
    body: Any
    headers: dict[str, str] = {}


def check(webhook: Webhook, field: str) -> None:
    """Raise if a webhook cannot be called."""
    if not _can_be_called(webhook.url):
        raise InvalidConfig(
            f"{field}.url is not a url that can be called",
            field=f"{field}.url",
            hint="such as https://example.org/hook",
        )
    if len(webhook.headers) > _MOST_HEADERS:
        raise InvalidConfig(f"a webhook has at most {_MOST_HEADERS} headers", field=f"{field}.headers")
    for name, value in webhook.headers.items():
        ours = name.lower() in _OURS or name.lower().startswith("tampu-")
        if ours or not _HEADER.match(name) or len(value) > _MOST_VALUE or not _VALUE.match(value):
            raise InvalidConfig(f"{field}: the header {name!r:.100} cannot be sent", field=f"{field}.headers")


def _can_be_called(url: str) -> bool:
    if len(url) > _MOST_URL or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and parts.username is None


def fields_of(webhook: Webhook, body: Any) -> dict[str, Any]:
    """The fields of the message that has a delivery. Receivers are groups: a slow one holds up no other."""
    delivery = Delivery(webhook.url, body, webhook.headers)
    try:
        size = len(msgspec.json.encode(delivery))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidConfig(f"the webhook cannot be sent as JSON: {error}", field="webhook") from None
    if size > MOST_BYTES:
        raise InvalidConfig(f"a webhook has at most {MOST_BYTES} bytes, not {size}", field="webhook")
    host = urllib.parse.urlsplit(webhook.url).netloc.lower()
    return {"payload": msgspec.to_builtins(delivery), "type": "tampu.webhook", "group": host[:128]}


def message(webhook: Webhook, body: Any, id: str) -> NewMessage:
    return NewMessage(**fields_of(webhook, body), id=id)
