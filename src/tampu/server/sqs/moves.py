"""Message move tasks: messages of a dead-letter queue go back to where they came from, or to a queue that is named.

A task runs on the node that started it. Each batch is one unit: published there and acked here. What it has done is in
a document of its own; a task whose node has died is shown as failed after a while, and may be started again.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import Any

import msgspec
import structlog

from tampu.broker.core import Read, Steps
from tampu.broker.store import AllVerbs
from tampu.engines import port
from tampu.model.decoders import from_json
from tampu.model.errors import TampuError, VersionConflict
from tampu.model.message import Lease, NewMessage
from tampu.model.outcome import Ack, Release
from tampu.model.times import SECOND
from tampu.server.server_state import ServerState
from tampu.server.sqs import parameters
from tampu.server.sqs.errors import SqsError
from tampu.server.sqs.queues import SqsQueues, arn, checked_name, queue_of_arn

log = structlog.get_logger("tampu.server")
_BATCH = 100
_TRIES = 20
_SILENT_US = 60 * SECOND
"""After this long without news, the node of a task is taken for dead."""
_OF_DEAD = "tampu-dead-"
_ORIGIN = f"{_OF_DEAD}queue"
KIND = "sqs-move"


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    source: str
    target: str | None
    started_us: int
    seen_us: int
    status: str = "RUNNING"
    rate: int | None = None
    moved: int = 0
    to_move: int = 0
    reason: str | None = None

    def handle(self) -> str:
        return base64.b64encode(msgspec.json.encode({"taskId": self.id, "sourceQueue": self.source})).decode()


_read_move = from_json(Move).decode
_read_handle = from_json(dict[str, str]).decode


def find(verbs: AllVerbs, queue: str) -> Steps[tuple[Move | None, int]]:
    """(the last task that moves messages of a queue, the version of its document)"""
    document: port.Document | None = yield Read(lambda engine: engine.document(KIND, verbs.tenant, queue))
    return (None, 0) if document is None else (_read_move(document.value), document.version)


def state(move: Move, now_us: int) -> str:
    return "FAILED" if move.status == "RUNNING" and now_us - move.seen_us > _SILENT_US else move.status


def view(move: Move, region: str, now_us: int) -> dict[str, Any]:
    status = state(move, now_us)
    reason = move.reason or ("the server that moved them has stopped; start it again" if status == "FAILED" else None)
    made = {
        "TaskHandle": move.handle() if status == "RUNNING" else None,
        "Status": status,
        "SourceArn": arn(move.source, region),
        "DestinationArn": None if move.target is None else arn(move.target, region),
        "MaxNumberOfMessagesPerSecond": move.rate,
        "ApproximateNumberOfMessagesMoved": move.moved,
        "ApproximateNumberOfMessagesToMove": move.to_move,
        "FailureReason": reason,
        "StartedTimestamp": move.started_us // 1000,
    }
    return {name: value for name, value in made.items() if value is not None}


def source_of(handle: str) -> tuple[str, str]:
    """(the source queue, the id of the task) of a task handle."""
    try:
        found = _read_handle(base64.b64decode(handle, validate=True))
        return checked_name(found["sourceQueue"]), found["taskId"]
    except (ValueError, KeyError, msgspec.MsgspecError, SqsError):
        raise SqsError("ResourceNotFoundException", "The task handle is invalid.") from None


def start(queues: SqsQueues, verbs: AllVerbs, given: dict[str, Any]) -> Steps[Move]:
    source = queue_of_arn(parameters.text(given, "SourceArn"))
    named = parameters.optional_text(given, "DestinationArn")
    target = None if named is None else queue_of_arn(named)
    rate = parameters.whole(given, "MaxNumberOfMessagesPerSecond", 1, 500)
    yield from queues.find(verbs, source)
    if target is not None:
        yield from queues.find(verbs, target)
    now: int = yield Read(lambda engine: engine.now())
    before, version = yield from find(verbs, source)
    if before is not None and state(before, now) in ("RUNNING", "CANCELLING"):
        raise SqsError("UnsupportedOperation", "There is already a task running for this source queue.")
    stats = yield from verbs.stats(source)
    move = Move(secrets.token_hex(16), source, target, now, now, rate=rate, to_move=stats.ready)
    yield from verbs.recorded([_put(verbs, move, version)], "sqs.move", source, None, move.target)
    return move


def cancel(verbs: AllVerbs, source: str, id: str) -> Steps[Move]:
    for attempt in range(_TRIES):
        move, version = yield from find(verbs, source)
        now: int = yield Read(lambda engine: engine.now())
        if move is None or move.id != id or state(move, now) != "RUNNING":
            break
        put = _put(verbs, msgspec.structs.replace(move, status="CANCELLING"), version)
        try:
            yield from verbs.recorded([put], "sqs.move.cancel", source)
        except VersionConflict:  # the mover has noted what it did
            if attempt < _TRIES - 1:
                continue
            raise
        return move
    raise SqsError("ResourceNotFoundException", "The specified task is not running.")


def _put(verbs: AllVerbs, move: Move, version: int) -> port.PutDocument:
    return port.PutDocument(KIND, verbs.tenant, move.source, msgspec.json.encode(move), version)


class Mover:
    """Runs the tasks of a node."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, verbs: AllVerbs, move: Move) -> None:
        task = asyncio.create_task(self._run(verbs, move), name=f"tampu-sqs-move-{move.source}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, verbs: AllVerbs, move: Move) -> None:
        drive = self._server.drive
        moved, status, reason = 0, "RUNNING", None
        while status == "RUNNING":
            try:
                count = await drive(move_batch(verbs, move))
                moved += count
                status = "RUNNING" if count else "COMPLETED"
            except (TampuError, SqsError) as error:
                log.warning("sqs_move_failed", queue=move.source, error=str(error))
                count, status, reason = 0, "FAILED", str(error)[:500]
            status = await drive(note(verbs, move, moved, status, reason))
            if move.rate is not None and status == "RUNNING":
                await asyncio.sleep(count / move.rate)


def note(verbs: AllVerbs, move: Move, moved: int, status: str, reason: str | None) -> Steps[str]:
    """Store what a task has done. Returns its status: cancelled, if somebody has asked for that meanwhile."""
    for _ in range(_TRIES):
        stored, version = yield from find(verbs, move.source)
        if stored is None or stored.id != move.id:
            return "CANCELLED"  # another task has taken its place
        now: int = yield Read(lambda engine: engine.now())
        kept = "CANCELLED" if stored.status == "CANCELLING" and status == "RUNNING" else status
        new = msgspec.structs.replace(stored, seen_us=now, status=kept, moved=moved, reason=reason)
        try:
            yield _put(verbs, new, version)
        except VersionConflict:
            continue
        return kept
    raise SqsError("ServiceUnavailable", "the task changes all the time", 503)


def move_batch(verbs: AllVerbs, move: Move) -> Steps[int]:
    """Move messages as one unit. Returns how many."""
    most = _BATCH if move.rate is None else min(_BATCH, move.rate)
    leases: list[Lease] = yield from verbs.claim(move.source, limit=most, lease=60, worker="sqs-move")
    if not leases:
        return 0
    try:
        members: list[Any] = []
        for lease in leases:
            target = move.target or (yield from _origin(verbs, move, lease))
            members += [verbs.publish_member(target, [_again(lease)]), verbs.settle_member(Ack(lease))]
        yield from verbs.together(members)
    except (TampuError, SqsError):
        yield from verbs.settle([Release(lease) for lease in leases])
        raise
    return len(leases)


def _origin(verbs: AllVerbs, move: Move, lease: Lease) -> Steps[str]:
    """Where a dead letter came from: its header says it, and the settings of that queue must agree."""
    named = lease.message.headers.get(_ORIGIN)
    if named is not None and (yield from verbs.get_config(checked_name(named))).dead_letter_to == move.source:
        return named
    raise SqsError(
        "UnsupportedOperation",
        f"message {lease.id} is no dead letter of a queue that redrives here: name a DestinationArn",
    )


def _again(lease: Lease) -> NewMessage:
    message = lease.message
    headers = {name: text for name, text in message.headers.items() if not name.startswith(_OF_DEAD)}
    return NewMessage(
        message.body.payload, type=message.body.type, content_type=message.body.content_type, group=message.group,
        headers=headers or None, labels=message.labels or None, priority=message.priority, source=message.source,
        correlation_id=message.correlation_id,
    )  # fmt: skip
