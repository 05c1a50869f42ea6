"""Message move tasks: messages of a dead-letter queue go back to where they came from, or to a queue that is named.

A task runs on the node that started it. Each batch is one unit: published there and acked here. What it has done is in
the document of the queue; a task whose node has died is shown as failed after a while, and may be started again.
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
from tampu.model.decoders import from_json
from tampu.model.errors import TampuError
from tampu.model.message import Lease, NewMessage
from tampu.model.outcome import Ack
from tampu.model.times import SECOND
from tampu.server.server_state import ServerState
from tampu.server.sqs import parameters
from tampu.server.sqs.errors import SqsError
from tampu.server.sqs.queues import SqsQueue, SqsQueues, arn, queue_of_arn

log = structlog.get_logger("tampu.server")
_BATCH = 100
_SILENT_US = 60 * SECOND
"""After this long without news, the node of a task is taken for dead."""
_OF_DEAD = "tampu-dead-"
_ORIGIN = f"{_OF_DEAD}queue"


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


_read_handle = from_json(dict[str, str]).decode


def of_queue(queue: SqsQueue) -> Move | None:
    return None if queue.move is None else msgspec.convert(queue.move, Move)


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
        return found["sourceQueue"], found["taskId"]
    except (ValueError, KeyError, msgspec.MsgspecError):
        raise SqsError("ResourceNotFoundException", "The task handle is invalid.") from None


def start(queues: SqsQueues, verbs: AllVerbs, given: dict[str, Any]) -> Steps[Move]:
    source = queue_of_arn(parameters.text(given, "SourceArn"))
    named = parameters.optional_text(given, "DestinationArn")
    target = None if named is None else queue_of_arn(named)
    rate = parameters.whole(given, "MaxNumberOfMessagesPerSecond", 1, 500)
    known = yield from queues.find(verbs, source)
    if target is not None:
        yield from queues.find(verbs, target)
    now: int = yield Read(lambda engine: engine.now())
    before = of_queue(known)
    if before is not None and state(before, now) == "RUNNING":
        raise SqsError(
            "UnsupportedOperation",
            "There is already a task running. Only one active task is allowed for a source queue.",
        )
    stats = yield from verbs.stats(source)
    move = Move(secrets.token_hex(16), source, target, now, now, rate=rate, to_move=stats.ready)
    yield from _write(queues, verbs, move, "sqs.move")
    return move


def cancel(queues: SqsQueues, verbs: AllVerbs, source: str, id: str) -> Steps[Move]:
    move = of_queue((yield from queues.find(verbs, source)))
    now: int = yield Read(lambda engine: engine.now())
    if move is None or move.id != id or state(move, now) != "RUNNING":
        raise SqsError("ResourceNotFoundException", "The specified task is not running.")
    yield from _write(queues, verbs, msgspec.structs.replace(move, status="CANCELLING"), "sqs.move.cancel")
    return move


def _write(queues: SqsQueues, verbs: AllVerbs, move: Move, action: str) -> Steps[None]:
    old, version = yield from queues.read(verbs, move.source)
    new = msgspec.structs.replace(old or SqsQueue(), move=msgspec.to_builtins(move))
    yield from queues.write(verbs, move.source, action, old, new, version)


class Mover:
    """Runs the tasks of a node."""

    def __init__(self, server: ServerState, queues: SqsQueues) -> None:
        self._server = server
        self._queues = queues
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, verbs: AllVerbs, move: Move) -> None:
        task = asyncio.create_task(self._run(verbs, move), name=f"tampu-sqs-move-{move.source}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, verbs: AllVerbs, move: Move) -> None:
        drive = self._server.drive
        try:
            while True:
                stored = of_queue(await drive(self._queues.find(verbs, move.source)))
                if stored is None or stored.id != move.id:
                    return
                if stored.status == "CANCELLING":
                    await drive(self._note(verbs, stored, status="CANCELLED"))
                    return
                count = await drive(move_batch(verbs, move))
                await drive(
                    self._note(verbs, stored, moved=stored.moved + count, status=None if count else "COMPLETED")
                )
                if not count:
                    return
                if move.rate is not None:
                    await asyncio.sleep(count / move.rate)
        except (TampuError, SqsError) as error:
            log.warning("sqs_move_failed", queue=move.source, error=str(error))
            await drive(self._note(verbs, move, status="FAILED", reason=str(error)[:500]))

    def _note(self, verbs: AllVerbs, move: Move, *, status: str | None, **changes: Any) -> Steps[None]:
        now: int = yield Read(lambda engine: engine.now())
        stored = of_queue((yield from self._queues.find(verbs, move.source))) or move
        kept = stored.status if status is None else status
        new = msgspec.structs.replace(stored, seen_us=now, status=kept, **changes)
        yield from _write(self._queues, verbs, new, "sqs.move.progress" if status is None else "sqs.move.end")


def move_batch(verbs: AllVerbs, move: Move) -> Steps[int]:
    """Move messages as one unit. Returns how many."""
    most = _BATCH if move.rate is None else min(_BATCH, move.rate)
    leases: list[Lease] = yield from verbs.claim(move.source, limit=most, lease=60, worker="sqs-move")
    if not leases:
        return 0
    members: list[Any] = []
    for lease in leases:
        target = move.target or lease.message.headers.get(_ORIGIN)
        if target is None:
            raise SqsError("UnsupportedOperation", f"message {lease.id} is no dead letter: name a DestinationArn")
        members += [verbs.publish_member(target, [_again(lease)]), verbs.settle_member(Ack(lease))]
    yield from verbs.together(members)
    return len(leases)


def _again(lease: Lease) -> NewMessage:
    message = lease.message
    headers = {name: text for name, text in message.headers.items() if not name.startswith(_OF_DEAD)}
    return NewMessage(
        message.body.payload, type=message.body.type, content_type=message.body.content_type, group=message.group,
        headers=headers or None, labels=message.labels or None, priority=message.priority, source=message.source,
        correlation_id=message.correlation_id,
    )  # fmt: skip
