"""ReceiveMessage, DeleteMessage and ChangeMessageVisibility: claims, acks and extensions in the words of SQS."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from tampu.broker.core import Steps
from tampu.broker.store import AllVerbs
from tampu.model.errors import LeaseLost, TampuError
from tampu.model.message import Lease, Message
from tampu.model.outcome import Ack, Nack, Settlement
from tampu.server.sqs import errors, message_attributes, parameters
from tampu.server.sqs.errors import SqsError, invalid
from tampu.server.sqs.queues import SqsQueue
from tampu.server.sqs.send import DEDUPLICATION, sequence_number

MOST_VISIBILITY = 43_200
_SHORTEST = 0.001
"""Seconds of a lease for who asks for none: the message is visible again at once."""
_ATTRIBUTES = (
    "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SequenceNumber",
    "MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn",
)  # fmt: skip
_DEAD_QUEUE = "tampu-dead-queue"


class Wanted:
    """The parameters of ReceiveMessage."""

    def __init__(self, queue: SqsQueue, given: dict[str, Any]) -> None:
        self.limit = parameters.whole(given, "MaxNumberOfMessages", 1, 10, 1) or 1
        wait = parameters.whole(given, "WaitTimeSeconds", 0, 20)
        self.wait = queue.number("ReceiveMessageWaitTimeSeconds") if wait is None else wait
        visibility = parameters.whole(given, "VisibilityTimeout", 0, MOST_VISIBILITY)
        if visibility is None and queue.attributes.get("VisibilityTimeout") == "0":
            visibility = 0
        self.lease = None if visibility is None else visibility or _SHORTEST
        names = parameters.texts(given, "AttributeNames") + parameters.texts(given, "MessageSystemAttributeNames")
        unknown = set(names) - {*_ATTRIBUTES, "All", "AWSTraceHeader"}
        if unknown:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {sorted(unknown)[0]:.80}.")
        self.system = set(_ATTRIBUTES) if "All" in names else set(names)
        self.attributes = parameters.texts(given, "MessageAttributeNames")

    @property
    def first_receive(self) -> bool:
        return "ApproximateFirstReceiveTimestamp" in self.system


def view(lease: Lease, queue: SqsQueue, wanted: Wanted, arn_of: Any, first_us: int) -> dict[str, Any]:
    """A message as its receiver gets it."""
    message = lease.message
    body = text_of(message)
    made: dict[str, Any] = {
        "MessageId": message.id,
        "ReceiptHandle": lease.receipt,
        "MD5OfBody": message_attributes.digest_of(body),
        "Body": body,
    }
    headers = {k: v for k, v in message.headers.items() if k != DEDUPLICATION}
    found, trace = message_attributes.of_headers(headers)
    system = {
        "SenderId": message.source or "",
        "SentTimestamp": str(message.created_us // 1000),
        "ApproximateReceiveCount": str(message.attempts),
        "ApproximateFirstReceiveTimestamp": str(first_us // 1000),
        "MessageGroupId": message.group,
        "AWSTraceHeader": trace,
        "MessageDeduplicationId": message.headers.get(DEDUPLICATION),
        "SequenceNumber": sequence_number(message.id) if queue.fifo else None,
        "DeadLetterQueueSourceArn": arn_of(message.headers[_DEAD_QUEUE]) if _DEAD_QUEUE in message.headers else None,
    }
    shown = {name: value for name, value in system.items() if name in wanted.system and value}
    if shown:
        made["Attributes"] = shown
    chosen = message_attributes.chosen(found, wanted.attributes)
    if chosen:
        made["MD5OfMessageAttributes"] = message_attributes.digest(chosen)
        made["MessageAttributes"] = msgspec.to_builtins(chosen)
    return made


def text_of(message: Message) -> str:
    """The payload as the text that SQS has; base64 if it is binary."""
    try:
        return message.body.payload.decode()
    except UnicodeDecodeError:
        return base64.b64encode(message.body.payload).decode()


def first_receives(verbs: AllVerbs, leases: Sequence[Lease], now_us: int) -> Steps[dict[str, int]]:
    """When each message was first received: for later deliveries, when the first one failed, or else now."""
    found: dict[str, int] = {}
    for lease in leases:
        if lease.attempt > 1:
            failures = (yield from verbs.get(lease.id)).failures
            if failures:
                found[lease.id] = round(failures[0].at.timestamp() * 1e6)
    return {lease.id: found.get(lease.id, now_us) for lease in leases}


# -- what happens to received messages


def handle_of(queue: str, given: dict[str, Any]) -> str:
    """The receipt handle, which is a receipt of tampu, of this queue."""
    receipt = parameters.text(given, "ReceiptHandle")
    if receipt.rpartition("/")[0] != queue or len(receipt) > 512:
        raise SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.", 404)
    return receipt


def deletion(queue: str, given: dict[str, Any]) -> Settlement:
    return Ack(handle_of(queue, given))


def visibility(queue: str, given: dict[str, Any]) -> tuple[str, int]:
    receipt = handle_of(queue, given)
    seconds = parameters.whole(given, "VisibilityTimeout", 0, MOST_VISIBILITY)
    if seconds is None:
        raise errors.missing("VisibilityTimeout")
    return receipt, seconds


def delete(verbs: AllVerbs, fifo: bool, receipts: Sequence[Settlement]) -> Steps[list[SqsError | None]]:
    """Ack messages. A late deletion in a standard queue succeeds without effect, as in SQS: the message comes again."""
    outcomes = yield from verbs.settle(receipts)

    def error(outcome: Any) -> SqsError | None:
        if outcome.error is None or (isinstance(outcome.error, LeaseLost) and not fifo):
            return None
        if isinstance(outcome.error, LeaseLost):
            return invalid("Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
        return errors.of(outcome.error)

    return [error(outcome) for outcome in outcomes]


def change_visibility(verbs: AllVerbs, changes: Sequence[tuple[str, int]]) -> Steps[list[SqsError | None]]:
    """Extend leases; no time at all gives a message back, and its delivery counts."""
    kept = [(receipt, seconds) for receipt, seconds in changes if seconds]
    given_back = [receipt for receipt, seconds in changes if not seconds]
    replies: dict[str, Any] = {}
    if kept:
        found = yield from verbs.extend_many(kept)
        replies |= {receipt: reply for (receipt, _), reply in zip(kept, found, strict=True)}
    if given_back:
        outcomes = yield from verbs.settle([Nack(receipt, "visibility set to 0", 0) for receipt in given_back])
        replies |= {receipt: outcome.error for receipt, outcome in zip(given_back, outcomes, strict=True)}

    def error(reply: Any) -> SqsError | None:
        if isinstance(reply, LeaseLost):
            return SqsError("MessageNotInflight", "The message referred to is not in flight.")
        return errors.of(reply) if isinstance(reply, TampuError) else None

    return [error(replies[receipt]) for receipt, _ in changes]
