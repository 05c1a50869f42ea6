"""Queues as SQS has them: attributes, tags and their settings. A queue that was made without SQS has the defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Core, Read, Steps
from tampu.broker.store import AllVerbs
from tampu.engines import port
from tampu.model.config import SYSTEM
from tampu.model.decoders import convert, from_json
from tampu.model.errors import InvalidMessage, InvalidState, NotFound
from tampu.model.times import SECOND
from tampu.server.sqs.errors import SqsError, invalid, no_queue

KIND = "sqs"
ACCOUNT = "000000000000"
_NAME = re.compile(r"[A-Za-z0-9_\-]{1,80}\Z")
_ARN = re.compile(r"arn:aws:sqs:[a-z0-9-]*:\d{0,12}:([A-Za-z0-9_.\-]{1,128})\Z")
_DAYS_4 = 345_600
_MOST_TAGS = 50
_MOST_CACHED = 10_000
FOREVER = 1000
"""Deliveries of a message of a queue without a redrive policy: the most that tampu has. SQS has no limit."""
_WHOLE = {
    "DelaySeconds": (0, 900), "MaximumMessageSize": (1024, 1_048_576), "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20), "VisibilityTimeout": (0, 43_200),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}  # fmt: skip
_CHOICES = {
    "FifoQueue": ("true",), "ContentBasedDeduplication": ("true", "false"), "SqsManagedSseEnabled": ("true", "false"),
    "DeduplicationScope": ("messageGroup", "queue"), "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}  # fmt: skip
OF_FIFO = ("ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit")
_KEPT = ("Policy", "RedriveAllowPolicy", "KmsMasterKeyId")
"""Accepted and shown again, without effect: access is by grants of keys."""
COMPUTED = (
    "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn",
)  # fmt: skip
SETTABLE = (*_WHOLE, *_CHOICES, *_KEPT, "RedrivePolicy")
_DEFAULTS = {
    "DelaySeconds": "0", "MaximumMessageSize": "1048576", "MessageRetentionPeriod": str(_DAYS_4),
    "ReceiveMessageWaitTimeSeconds": "0", "VisibilityTimeout": "30", "SqsManagedSseEnabled": "false",
}  # fmt: skip
_DEFAULTSOF_FIFO = {
    "ContentBasedDeduplication": "false", "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue",
}  # fmt: skip
_OF_FIFO_QUEUES = {"group_order": True, "idempotency_window": 300}


class SqsQueue(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a queue, beside its settings."""

    attributes: dict[str, str] = {}
    """As they were set; see `value` for the others."""
    tags: dict[str, str] = {}
    created_us: int = 0
    changed_us: int = 0
    deleted: bool = False
    purged_us: int = 0

    @property
    def fifo(self) -> bool:
        return self.attributes.get("FifoQueue") == "true"

    def value(self, name: str) -> str:
        return self.attributes.get(name) or _DEFAULTS.get(name) or _DEFAULTSOF_FIFO.get(name, "")

    def number(self, name: str) -> int:
        return int(self.value(name))


class RedrivePolicy(msgspec.Struct, rename={"target": "deadLetterTargetArn", "most": "maxReceiveCount"}):
    target: str
    most: int


_read = from_json(SqsQueue).decode
_read_policy = from_json(RedrivePolicy).decode


def queue_of_url(url: str) -> str:
    """The name of a queue, from its url: its last part."""
    return checked_name(url.rstrip("/").rpartition("/")[2])


def queue_of_arn(arn: Any) -> str:
    found = _ARN.match(arn) if isinstance(arn, str) else None
    if found is None:
        raise invalid(f"{arn!r:.150} is not the ARN of a queue: arn:aws:sqs:REGION:{ACCOUNT}:NAME")
    return found[1]


def arn(queue: str, region: str) -> str:
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{queue}"


def checked_name(name: str) -> str:
    """A name that a queue of tampu may have; only new queues are held to what SQS allows."""
    try:
        return validate.name(name, "queue")
    except InvalidMessage as error:
        raise SqsError("InvalidAddress", str(error)) from None


def checked_new_name(name: Any, *, fifo: bool) -> str:
    plain = name.removesuffix(".fifo") if fifo and isinstance(name, str) else name
    if not isinstance(name, str) or not _NAME.match(plain) or len(name) > 80 or (fifo and plain == name):
        raise invalid(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
            " The name of a FIFO queue ends with .fifo."
        )
    return checked_name(name)


def checked_attributes(given: Mapping[str, Any], *, fifo: bool) -> dict[str, str]:
    """The attributes of CreateQueue and SetQueueAttributes."""
    made: dict[str, str] = {}
    for name, value in given.items():
        if name not in SETTABLE:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name:.80}.")
        if name in (*OF_FIFO, "FifoQueue") and not fifo:
            raise SqsError("InvalidAttributeName", f"{name} is only for FIFO queues.")
        made[name] = _checked_attribute(name, value)
    return made


def _checked_attribute(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    bad = SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
    if name in _WHOLE:
        low, high = _WHOLE[name]
        if not text.isascii() or not text.isdigit() or len(text) > 9 or not low <= int(text) <= high:
            raise bad
    elif name in _CHOICES:
        if text not in _CHOICES[name]:
            raise bad
    elif len(text) > 64 << 10:
        raise bad
    elif name == "RedrivePolicy" and text:
        policy_of(text)
    return text


def policy_of(text: str) -> RedrivePolicy | None:
    """The redrive policy in an attribute; None if it is empty."""
    if not text:
        return None
    try:
        raw = msgspec.json.decode(text)
        policy = convert(raw, RedrivePolicy, strict=False)
        if not 1 <= policy.most <= FOREVER:
            raise ValueError
        queue_of_arn(policy.target)
        return policy
    except (ValueError, TypeError, RecursionError, SqsError):
        raise SqsError(
            "InvalidAttributeValue",
            f'RedrivePolicy must be {{"deadLetterTargetArn": ARN, "maxReceiveCount": 1 to {FOREVER}}}',
        ) from None


def settings_of(attributes: Mapping[str, str], *, new: bool) -> dict[str, Any]:
    """The settings that attributes stand for."""
    made: dict[str, Any] = {}
    if new:
        made = {"max_attempts": FOREVER, "ttl": _DAYS_4, "max_payload": 1 << 20, "lease": 30.0, "dead_letter_to": ""}
        if attributes.get("FifoQueue") == "true":
            made |= _OF_FIFO_QUEUES
    for name, value in attributes.items():
        if name == "VisibilityTimeout":
            made["lease"] = int(value) or 1.0  # a lease of no time is asked for at each claim
        elif name == "MessageRetentionPeriod":
            made["ttl"] = int(value)
        elif name == "MaximumMessageSize":
            made["max_payload"] = int(value)
        elif name == "RedrivePolicy":
            policy = policy_of(value)
            made["max_attempts"] = FOREVER if policy is None else policy.most
            made["dead_letter_to"] = "" if policy is None else queue_of_arn(policy.target)
    return made


class SqsQueues:
    """The queues of a node, cached until a document of the store changes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[tuple[str, str], SqsQueue] = {}

    def forget(self) -> None:
        self._known.clear()

    def cached(self, tenant: str, queue: str) -> SqsQueue | None:
        return self._known.get((tenant, queue))

    def find(self, verbs: AllVerbs, queue: str) -> Steps[SqsQueue]:
        """The queue; raises `QueueDoesNotExist`."""
        found, _ = yield from self.read(verbs, queue)
        if found is None and (yield from _exists(verbs, queue)):
            found = SqsQueue()
        if found is None or found.deleted:
            raise no_queue()
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        self._known[verbs.tenant, queue] = found
        return found

    def read(self, verbs: AllVerbs, queue: str) -> Steps[tuple[SqsQueue | None, int]]:
        """(what is stored of the queue, the version of its document)"""
        document: port.Document | None = yield Read(lambda engine: engine.document(KIND, verbs.tenant, queue))
        return (None, 0) if document is None else (_read(document.value), document.version)

    def write(
        self, verbs: AllVerbs, queue: str, action: str, old: SqsQueue | None, new: SqsQueue, version: int
    ) -> Steps[None]:
        put = port.PutDocument(KIND, verbs.tenant, queue, msgspec.json.encode(new), version)
        before = None if old is None else old.attributes
        yield from verbs.recorded([put], action, queue, before, new.attributes)
        self.forget()

    def create(self, verbs: AllVerbs, queue: str, attributes: dict[str, str], tags: dict[str, str]) -> Steps[None]:
        old, version = yield from self.read(verbs, queue)
        exists = yield from _exists(verbs, queue)
        if old is not None and exists and not old.deleted:
            if any(old.value(name) != value for name, value in attributes.items()):
                raise SqsError(
                    "QueueNameExists",
                    "A queue already exists with the same name and a different value for an attribute",
                )
            return
        now: int = yield Read(lambda engine: engine.now())
        if exists and old is not None:  # deleted while messages were leased
            yield from verbs.purge(queue, state=["ready", "delayed", "held"])
        settings = settings_of(attributes, new=not exists or old is not None)
        if attributes.get("FifoQueue") == "true":
            settings |= _OF_FIFO_QUEUES
        yield from verbs.put_config(queue, **settings, status="open")
        yield from self.write(verbs, queue, "sqs.create", old, SqsQueue(attributes, tags, now, now), version)

    def set(self, verbs: AllVerbs, queue: str, attributes: dict[str, str]) -> Steps[None]:
        yield from self.find(verbs, queue)
        old, version = yield from self.read(verbs, queue)
        base = old or SqsQueue()
        now: int = yield Read(lambda engine: engine.now())
        if settings := settings_of(attributes, new=False):
            yield from verbs.put_config(queue, **settings)
        new = msgspec.structs.replace(base, attributes=base.attributes | attributes, changed_us=now)
        yield from self.write(verbs, queue, "sqs.set", old, new, version)

    def tag(self, verbs: AllVerbs, queue: str, tags: Mapping[str, str], gone: list[str]) -> Steps[None]:
        yield from self.find(verbs, queue)
        old, version = yield from self.read(verbs, queue)
        base = old or SqsQueue()
        left = {name: value for name, value in (base.tags | dict(tags)).items() if name not in gone}
        if len(left) > _MOST_TAGS or any(len(k) > 128 or len(v) > 256 for k, v in left.items()):
            raise invalid(f"A queue has at most {_MOST_TAGS} tags, with keys of 128 and values of 256 characters.")
        yield from self.write(verbs, queue, "sqs.tag", old, msgspec.structs.replace(base, tags=left), version)

    def delete(self, verbs: AllVerbs, queue: str) -> Steps[None]:
        """Remove the queue. If messages are leased, it is closed and hidden, until it is created again."""
        yield from self.find(verbs, queue)
        old, version = yield from self.read(verbs, queue)
        try:
            yield from verbs.remove_queue(queue, force=True)
            if old is not None:
                gone = port.DeleteDocument(KIND, verbs.tenant, queue)
                yield from verbs.recorded([gone], "sqs.delete", queue, old.attributes)
        except InvalidState:
            yield from verbs.close_queue(queue)
            new = msgspec.structs.replace(old or SqsQueue(), deleted=True)
            yield from self.write(verbs, queue, "sqs.delete", old, new, version)
        self.forget()

    def purge(self, verbs: AllVerbs, queue: str) -> Steps[None]:
        yield from self.find(verbs, queue)
        old, version = yield from self.read(verbs, queue)
        now: int = yield Read(lambda engine: engine.now())
        if old is not None and now - old.purged_us < 60 * SECOND and old.purged_us:
            raise SqsError("PurgeQueueInProgress", "Only one PurgeQueue operation is allowed every 60 seconds.", 403)
        yield from self.write(
            verbs, queue, "sqs.purge", old, msgspec.structs.replace(old or SqsQueue(), purged_us=now), version
        )
        yield from verbs.purge(queue, state=["ready", "delayed", "held"])

    def all(self, verbs: AllVerbs) -> Steps[dict[str, SqsQueue]]:
        """All queues by name, without deleted ones."""
        names: list[str] = yield from verbs.list_queues()
        documents: list[port.Document] = yield Read(lambda engine: engine.documents(KIND, verbs.tenant))
        stored = {document.name: _read(document.value) for document in documents}
        found = {name: stored.get(name, SqsQueue()) for name in sorted(names) if not name.startswith(SYSTEM)}
        return {name: queue for name, queue in found.items() if not queue.deleted}


def _exists(verbs: AllVerbs, queue: str) -> Steps[bool]:
    try:
        yield from verbs.stats(queue)
    except NotFound:
        return False
    return True
