"""SendMessage and SendMessageBatch: entries become messages of tampu."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker.core import Steps
from tampu.broker.store import AllVerbs
from tampu.model.errors import IdempotencyConflict, TampuError
from tampu.model.message import TEXT, Message, NewMessage
from tampu.server.sqs import errors, message_attributes, parameters
from tampu.server.sqs.errors import SqsError, invalid, missing
from tampu.server.sqs.message_attributes import Value
from tampu.server.sqs.queues import SqsQueue

DEDUPLICATION = "sqs-deduplication-id"
"""The header with the deduplication id of a message, as its sender gave it."""
_FIFO_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}\Z")
_DUPLICATES = uuid.UUID("6f1d9a54-6d3c-5d52-9b55-6b6f0c3a7c11")
"""Namespace of the ids that senders get for duplicates with another body."""


class Draft(msgspec.Struct):
    """A message to send, and what its sender gets to check it."""

    new: NewMessage
    body: str
    attributes: dict[str, Value]
    system: dict[str, Value]

    def result(self, fifo: bool, id: str) -> dict[str, Any]:
        made = {"MessageId": id, "MD5OfMessageBody": message_attributes.digest_of(self.body)}
        if self.attributes:
            made["MD5OfMessageAttributes"] = message_attributes.digest(self.attributes)
        if self.system:
            made["MD5OfMessageSystemAttributes"] = message_attributes.digest(self.system)
        return made | ({"SequenceNumber": sequence_number(id)} if fifo else {})


def sequence_number(id: str) -> str:
    """Grows from message to message, as ids do: their time, then their place in the commit."""
    return f"{int(id.replace('-', '')[:20], 16):025d}"


def draft(queue: SqsQueue, given: dict[str, Any], source: str) -> Draft:
    """The message of one entry; raises `SqsError`."""
    body = given.get("MessageBody")
    if not isinstance(body, str) or not body:
        raise missing("MessageBody")
    if not message_attributes.is_text(body):
        raise SqsError(
            "InvalidMessageContents", "Invalid characters found. Valid unicode characters are those of XML 1.0."
        )
    attributes = message_attributes.checked(parameters.mapping(given, "MessageAttributes"))
    system = message_attributes.checked(parameters.mapping(given, "MessageSystemAttributes"))
    most = queue.number("MaximumMessageSize")
    if len(body.encode()) + message_attributes.size(attributes) > most:
        raise invalid(f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes.")
    headers = message_attributes.to_headers(attributes, system)
    delay = parameters.whole(given, "DelaySeconds", 0, 900)
    group = _fifo_id(given, "MessageGroupId")
    once = _fifo_id(given, "MessageDeduplicationId")
    key = None
    if queue.fifo:
        if group is None:
            raise missing("MessageGroupId")
        if delay:
            raise invalid("DelaySeconds is not allowed for a message of a FIFO queue; set it for the queue.")
        if once is None and queue.value("ContentBasedDeduplication") != "true":
            raise invalid(
                "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided"
            )
        once = once or hashlib.sha256(body.encode()).hexdigest()
        headers[DEDUPLICATION] = once
        scope = group if queue.value("DeduplicationScope") == "messageGroup" else ""
        key = f"{once} {scope}" if scope else once  # neither has a space
    elif once is not None:
        raise invalid("MessageDeduplicationId is only for FIFO queues.")
    wait = queue.number("DelaySeconds") if delay is None else delay
    new = NewMessage(
        body,
        content_type=TEXT,
        delay=wait or None,
        group=group,
        idempotency_key=key,
        headers=headers or None,
        source=source,
    )
    return Draft(new, body, attributes, system)


def _fifo_id(given: dict[str, Any], name: str) -> str | None:
    found = parameters.optional_text(given, name)
    if found is not None and not _FIFO_ID.match(found):
        raise invalid(f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.")
    return found


def publish(verbs: AllVerbs, name: str, drafts: Sequence[Draft]) -> Steps[list[str | TampuError]]:
    """Publish in one commit; returns ids. If one message cannot be stored, each is published by itself."""
    news = [draft.new for draft in drafts]
    try:
        stored: list[Message] = yield from verbs.publish_many(name, news)
        return [message.id for message in stored]
    except TampuError as error:
        if len(drafts) == 1:
            return [_duplicate(verbs.tenant, name, drafts[0], error)]
    made: list[str | TampuError] = []
    for each in drafts:
        made += yield from publish(verbs, name, [each])
    return made


def _duplicate(tenant: str, queue: str, draft: Draft, error: TampuError) -> str | TampuError:
    """SQS accepts a message with a deduplication id that it knows, whatever its body, and does not deliver it."""
    if isinstance(error, IdempotencyConflict) and draft.new.idempotency_key is not None:
        return str(uuid.uuid5(_DUPLICATES, f"{tenant}/{queue}/{draft.new.idempotency_key}"))
    return error


def send_one(verbs: AllVerbs, name: str, queue: SqsQueue, given: dict[str, Any], source: str) -> Steps[dict[str, Any]]:
    made = draft(queue, given, source)
    (id,) = yield from publish(verbs, name, [made])
    if isinstance(id, TampuError):
        raise id
    return made.result(queue.fifo, id)


def send_batch(
    verbs: AllVerbs, name: str, queue: SqsQueue, entries: Sequence[dict[str, Any]], source: str
) -> Steps[dict[str, Any]]:
    bodies = [entry.get("MessageBody") for entry in entries]
    total = sum(len(body.encode()) for body in bodies if isinstance(body, str))
    if total > queue.number("MaximumMessageSize"):
        raise SqsError("BatchRequestTooLong", "The length of all the messages put together is more than the limit.")
    drafts: dict[str, Draft] = {}
    failed = []
    for entry in entries:
        try:
            drafts[entry["Id"]] = draft(queue, entry, source)
        except SqsError as error:
            failed.append(parameters.failed(entry["Id"], error))
    ids = (yield from publish(verbs, name, list(drafts.values()))) if drafts else []
    sent = []
    for (entry_id, each), id in zip(drafts.items(), ids, strict=True):
        if isinstance(id, TampuError):
            failed.append(parameters.failed(entry_id, errors.of(id)))
        else:
            sent.append({"Id": entry_id, **each.result(queue.fifo, id)})
    return {"Successful": sent, "Failed": failed}
