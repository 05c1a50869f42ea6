"""Requests at ``/sqs``: who signed it, which action, and its answer in the protocol of the request."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from tampu.model.errors import Forbidden, NotFound, TampuError
from tampu.server.auth import keys
from tampu.server.auth.grants import Caller
from tampu.server.http.message_handlers import claim_waiting
from tampu.server.http.request import ADMITTED, Disconnected, HttpRequest, Reply
from tampu.server.server_state import ServerState
from tampu.server.sqs import errors, moves, parameters, queues, receive, send, signature
from tampu.server.sqs.errors import SqsError, invalid
from tampu.server.sqs.protocol import encoding_of
from tampu.server.sqs.queues import ACCOUNT, SqsQueue, SqsQueues

PATH = "/sqs"
_MOST_BODY = 8 << 20
"""A batch of 1 MB as JSON, in which a character may take six bytes."""
_MOST_LISTED = 1000
_DEFAULT_REGION = "us-east-1"
_UNUSED = bytes(32)
log = structlog.get_logger("tampu.server")
Result = dict[str, Any]


class SqsState:
    """What the requests of one node share."""

    def __init__(self, server: ServerState) -> None:
        self.queues = SqsQueues(server.core)
        self.mover = moves.Mover(server)
        self.revision = -1


def is_for(path: str, headers: Mapping[bytes, bytes]) -> bool:
    """True if a POST is of an SQS client. Some, such as Celery, can be given a host and a port, but no path."""
    return path == PATH or path.startswith(f"{PATH}/") or (path == "/" and b"x-amz-target" in headers)


async def handle(request: HttpRequest) -> Reply:
    if not request.server.settings.sqs:
        raise NotFound("the protocol of SQS is off", hint="start the server with --sqs, or TAMPU_SQS=true")
    encoding = encoding_of(request)
    try:
        region, body = await _admit(request)
        action, given = await request.off_loop(encoding.read, request, body)
        method = ACTIONS.get(action)
        if method is None:
            raise SqsError("InvalidAction", f"The action {action!r:.80} is not valid for this endpoint.")
        assert request.caller is not None
        result = await method(Actions(request, request.caller, region), given)
        return encoding.write(action, result or {}, request.id)
    except SqsError as error:
        return _refused(request, encoding.refuse(error, request.id), error)
    except TampuError as error:
        found = errors.of(error)
        return _refused(request, encoding.refuse(found, request.id), found)
    except (Disconnected, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("defect", request_id=request.id, route=request.route)
        defect = SqsError("InternalFailure", "internal error: this is a bug in tampu; its log has the request id", 500)
        return _refused(request, encoding.refuse(defect, request.id), defect)


def _refused(request: HttpRequest, reply: Reply, error: SqsError) -> Reply:
    request.server.metrics.refused.labels("other" if error.status < 500 else "internal").inc()
    return reply


async def _admit(request: HttpRequest) -> tuple[str, bytes]:
    """Authenticate the caller. Returns the region that it named, and the body."""
    server = request.server
    given = request.headers.get(b"authorization", b"")
    if not server.settings.auth or not signature.is_signed(given):
        if server.settings.auth and not given:
            raise SqsError("MissingAuthenticationToken", "sign the request, with a key of tampu keys aws", 403)
        await request.admit()
        region = signature.read(given).region if signature.is_signed(given) else _DEFAULT_REGION
        return region, await request.body(min(_MOST_BODY, server.settings.max_body))
    signed = signature.read(given)
    at = signature.check_time(signed, request.headers.get(b"x-amz-date"), server.now_us())
    signature.check_headers(signed, request.headers)
    id = signed.key.removeprefix("tampu_")
    key_cache = server.authenticator.key_cache
    known = key_cache.known_hashes(id)
    hashes = known or await key_cache.hashes(id)
    if not hashes:  # nobody without a key sends a body; refusing takes as long as checking a signature
        _signed_by([], signed, at, "")
        server.authenticator.failed(request.address)
        raise SqsError("InvalidClientTokenId", "no such access key: run tampu keys aws for the one of your key", 403)
    body = await request.body(min(_MOST_BODY, server.settings.max_body))
    digest = request.headers.get(b"x-amz-content-sha256", b"").decode("latin-1")
    if digest not in ("", hashlib.sha256(body).hexdigest()):
        raise SqsError("SignatureDoesNotMatch", "x-amz-content-sha256 is not the digest of the body", 403)
    scope = request.scope
    path, query = scope["raw_path"], scope["query_string"]
    text = signature.canonical(scope["method"], path, query, scope["headers"], signed, body)
    found = _signed_by(hashes, signed, at, text)
    if found is None and known:  # the key may have been rotated
        found = _signed_by(await key_cache.hashes(id), signed, at, text)
    if found is not None:
        request.signed_by = id, found
        request.caller = await server.authenticator.admit_hash(id, found, request.headers)
        scope[ADMITTED] = True
        return signed.region, body
    server.authenticator.failed(request.address)
    raise SqsError("SignatureDoesNotMatch", "The signature does not match: check the secret access key", 403)


def _signed_by(hashes: list[bytes], signed: signature.Signed, at: str, text: str) -> bytes | None:
    """The hash of the secret that signed the request. An unknown key takes as long to refuse as a known one."""
    for each in hashes or [_UNUSED]:
        if signature.matches(keys.aws_secret(each), signed, at, text) and hashes:
            return each
    return None


class Actions:
    """The actions of one request. Each gets the parameters of the JSON protocol, and returns what it answers."""

    def __init__(self, request: HttpRequest, caller: Caller, region: str) -> None:
        self.request = request
        self.caller = caller
        self.region = region
        self.server = request.server
        self.state = state_of(request.server)
        self.queues = self.state.queues
        if self.state.revision != request.server.revision:
            self.state.revision = request.server.revision
            self.queues.forget()

    # -- messages

    async def send_message(self, given: Result) -> Result:
        name, queue = await self._queue(given, "publish")
        await self.request.spend(self.caller, 1)
        await self.server.load_settings(self.caller.tenant, name)
        made: Result = await self._drive(send.send_one(self._plain, name, queue, given, self.caller.name))
        self.server.metrics.publish(self.caller.tenant, name)
        self.request.subject.add(ids=(made["MessageId"],))
        return made

    async def send_message_batch(self, given: Result) -> Result:
        name, queue = await self._queue(given, "publish")
        entries = parameters.entries(given)
        await self.request.spend(self.caller, len(entries))
        await self.server.load_settings(self.caller.tenant, name)
        made: Result = await self._drive(send.send_batch(self._plain, name, queue, entries, self.caller.name))
        self.server.metrics.publish(self.caller.tenant, name, len(made["Successful"]))
        return made

    async def receive_message(self, given: Result) -> Result:
        name, queue = await self._queue(given, "consume")
        wanted = receive.Wanted(queue, given)
        await self.request.spend(self.caller, 1)
        await self.server.load_settings(self.caller.tenant, name)
        wait = min(wanted.wait, self.server.settings.max_wait)
        steps = self._plain.claim(
            name, limit=wanted.limit, lease=wanted.lease, wait=wait, worker=self.caller.name[:100]
        )
        leases = await (claim_waiting(self.request, self.caller, steps) if wait else self._drive(steps))
        await self.request.charge(self.caller, len(leases) - 1)
        now = self.server.now_us()
        self.server.metrics.claim(leases, now)
        self.request.subject.add(ids=(lease.id for lease in leases))
        first = {}
        if wanted.first_receive:
            first = await self._drive(receive.first_receives(self._plain, leases, now))
        views = [receive.view(lease, queue, wanted, self._arn, first.get(lease.id, now)) for lease in leases]
        return {"Messages": views} if views else {}

    async def delete_message(self, given: Result) -> None:
        name, queue = await self._queue(given, "consume")
        await self.request.spend(self.caller, 1)
        (error,) = await self._drive(receive.delete(self._plain, queue.fifo, [receive.deletion(name, given)]))
        if error is not None:
            raise error

    async def delete_message_batch(self, given: Result) -> Result:
        name, queue = await self._queue(given, "consume")
        return await self._each(given, receive.deletion, name, lambda v, found: receive.delete(v, queue.fifo, found))

    async def change_message_visibility(self, given: Result) -> None:
        name, _ = await self._queue(given, "consume")
        await self.request.spend(self.caller, 1)
        (error,) = await self._drive(receive.change_visibility(self._plain, [receive.visibility(name, given)]))
        if error is not None:
            raise error

    async def change_message_visibility_batch(self, given: Result) -> Result:
        name, _ = await self._queue(given, "consume")
        return await self._each(given, receive.visibility, name, receive.change_visibility)

    async def _each(self, given: Result, read: Callable[..., Any], name: str, act: Callable[..., Any]) -> Result:
        """Carry out the entries of a batch in one commit; each has its own outcome."""
        entries = parameters.entries(given)
        await self.request.spend(self.caller, len(entries))
        await self.server.load_settings(self.caller.tenant, name)
        found: dict[str, Any] = {}
        failed = []
        for entry in entries:
            try:
                found[entry["Id"]] = read(name, entry)
            except SqsError as error:
                failed.append(parameters.failed(entry["Id"], error))
        replies = (await self._drive(act(self._plain, list(found.values())))) if found else []
        done = []
        for id, refused in zip(found, replies, strict=True):
            if refused is None:
                done.append({"Id": id})
            else:
                failed.append(parameters.failed(id, refused))
        return {"Successful": done, "Failed": failed}

    # -- queues

    async def create_queue(self, given: Result) -> Result:
        raw = parameters.mapping(given, "Attributes")
        fifo = raw.get("FifoQueue") in ("true", True)
        name = queues.checked_new_name(given.get("QueueName"), fifo=fifo)
        self._need("operate", name)
        attributes = queues.checked_attributes(raw, fifo=fifo)
        self._need_target(attributes)
        tags = parameters.tags(given, "tags") or parameters.tags(given, "Tags")
        await self.request.drive(self.queues.create(self.request.verbs, name, attributes, tags))
        return {"QueueUrl": self._url(name)}

    async def get_queue_url(self, given: Result) -> Result:
        name = queues.checked_name(parameters.text(given, "QueueName"))
        self._need_any(name)
        await self.request.drive(self.queues.find(self.request.verbs, name))
        return {"QueueUrl": self._url(name)}

    async def list_queues(self, given: Result) -> Result:
        prefix = parameters.optional_text(given, "QueueNamePrefix") or ""
        found = await self.request.drive_listing(self.caller, self.queues.all(self.request.verbs))
        return self._page("QueueUrls", [n for n in found if n.startswith(prefix) and self._may_any(n)], given)

    async def list_dead_letter_source_queues(self, given: Result) -> Result:
        name, _ = await self._queue(given)
        found = await self.request.drive_listing(self.caller, self.queues.all(self.request.verbs))

        def leads_here(queue: SqsQueue) -> bool:
            policy = queues.policy_of(queue.value("RedrivePolicy"))
            return policy is not None and queues.queue_of_arn(policy.target) == name

        return self._page("queueUrls", [n for n, q in found.items() if leads_here(q) and self._may_any(n)], given)

    def _page(self, field: str, names: list[str], given: Result) -> Result:
        most = parameters.whole(given, "MaxResults", 1, _MOST_LISTED)
        after = parameters.optional_text(given, "NextToken")
        if after is not None:
            try:
                begin = base64.urlsafe_b64decode(after).decode()
            except ValueError:
                raise invalid("NextToken is invalid.") from None
            names = [name for name in names if name > begin]
        page = names[: most or _MOST_LISTED]
        made: Result = {field: [self._url(name) for name in page]}
        if most is not None and len(names) > len(page):
            made["NextToken"] = base64.urlsafe_b64encode(page[-1].encode()).decode()
        return made if page or field == "queueUrls" else {}

    async def get_queue_attributes(self, given: Result) -> Result:
        name, queue = await self._queue(given)
        names = parameters.texts(given, "AttributeNames")
        unknown = set(names) - {*queues.SETTABLE, *queues.COMPUTED, "All"}
        if unknown:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {sorted(unknown)[0]:.80}.")
        stats = await self.request.drive(self.request.verbs.stats(name))
        found = {attribute: queue.value(attribute) for attribute in queues.SETTABLE}
        if not queue.fifo:
            found |= dict.fromkeys((*queues.OF_FIFO, "FifoQueue"), "")
        found |= {
            "ApproximateNumberOfMessages": str(stats.ready + stats.held),
            "ApproximateNumberOfMessagesNotVisible": str(stats.leased),
            "ApproximateNumberOfMessagesDelayed": str(stats.delayed),
            "CreatedTimestamp": str(queue.created_us // 1_000_000),
            "LastModifiedTimestamp": str(queue.changed_us // 1_000_000),
            "QueueArn": self._arn(name),
        }
        shown = {k: v for k, v in found.items() if v and ("All" in names or k in names)}
        return {"Attributes": shown} if shown else {}

    async def set_queue_attributes(self, given: Result) -> None:
        name, queue = await self._queue(given, "operate")
        attributes = queues.checked_attributes(parameters.mapping(given, "Attributes"), fifo=queue.fifo)
        self._need_target(attributes)
        await self.request.drive(self.queues.set(self.request.verbs, name, attributes))

    async def delete_queue(self, given: Result) -> None:
        name, _ = await self._queue(given, "operate")
        await self.request.drive(self.queues.delete(self.request.verbs, name))

    async def purge_queue(self, given: Result) -> None:
        name, _ = await self._queue(given, "operate")
        await self.request.drive(self.queues.purge(self.request.verbs, name))

    async def tag_queue(self, given: Result) -> None:
        name, _ = await self._queue(given, "operate")
        await self.request.drive(self.queues.tag(self.request.verbs, name, parameters.tags(given, "Tags"), []))

    async def untag_queue(self, given: Result) -> None:
        name, _ = await self._queue(given, "operate")
        await self.request.drive(self.queues.tag(self.request.verbs, name, {}, parameters.texts(given, "TagKeys")))

    async def list_queue_tags(self, given: Result) -> Result:
        _, queue = await self._queue(given)
        return {"Tags": queue.tags} if queue.tags else {}

    async def change_permission(self, given: Result) -> None:
        """AddPermission and RemovePermission change nothing: who may do what is said by the grants of keys."""
        name, _ = await self._queue(given, "operate")
        log.info(
            "sqs_permission_ignored", queue=name, hint="access is by the grants of keys: tampu keys create --grant"
        )

    # -- moves

    async def start_message_move_task(self, given: Result) -> Result:
        source = queues.queue_of_arn(parameters.text(given, "SourceArn"))
        self._need("operate", source)
        if given.get("DestinationArn"):
            self._need("publish", queues.queue_of_arn(given["DestinationArn"]))
        elif not self.caller.everywhere("publish"):
            raise Forbidden("moving to where messages came from needs the permission publish in all queues",
                            hint="name a DestinationArn that this key may publish to")  # fmt: skip
        try:
            move = await self.request.drive(moves.start(self.queues, self.request.verbs, given))
        except SqsError as error:
            raise _resource(error) from None
        self.state.mover.run(self.request.verbs, move)
        return {"TaskHandle": move.handle()}

    async def cancel_message_move_task(self, given: Result) -> Result:
        source, id = moves.source_of(parameters.text(given, "TaskHandle"))
        self._need("operate", source)
        move = await self.request.drive(moves.cancel(self.request.verbs, source, id))
        return {"ApproximateNumberOfMessagesMoved": move.moved}

    async def list_message_move_tasks(self, given: Result) -> Result:
        source = queues.queue_of_arn(parameters.text(given, "SourceArn"))
        self._need_any(source)
        try:
            await self.request.drive(self.queues.find(self.request.verbs, source))
        except SqsError as error:
            raise _resource(error) from None
        move, _ = await self.request.drive(moves.find(self.request.verbs, source))
        return {"Results": [] if move is None else [moves.view(move, self.region, self.server.now_us())]}

    # -- shared

    @property
    def _plain(self) -> Any:
        return self.server.verbs(self.caller.tenant)

    async def _drive(self, steps: Any) -> Any:
        return await self.server.drive(steps)

    async def _queue(self, given: Result, permission: str | None = None) -> tuple[str, SqsQueue]:
        """(name, queue) of a request about a queue. The caller needs the permission, or any."""
        name = queues.queue_of_url(parameters.optional_text(given, "QueueUrl") or self.request.scope["path"])
        self.request.subject.add((name,))
        if permission is None:
            self._need_any(name)
        else:
            self._need(permission, name)
        known = self.queues.cached(self.caller.tenant, name)
        if known is None:
            known = await self._drive(self.queues.find(self._plain, name))
        return name, known

    def _need(self, permission: str, queue: str) -> None:
        self.caller.need(permission, queue)

    def _may_any(self, queue: str) -> bool:
        return any(self.caller.may(permission, queue) for permission in self.caller.permissions)

    def _need_any(self, queue: str) -> None:
        if not self._may_any(queue):
            raise errors.no_queue()

    def _need_target(self, attributes: dict[str, str]) -> None:
        policy = queues.policy_of(attributes.get("RedrivePolicy", ""))
        if policy is not None:
            self._need("operate", queues.queue_of_arn(policy.target))

    def _url(self, name: str) -> str:
        host = self.request.headers.get(b"host", b"localhost").decode("latin-1")
        scheme = "https" if self.request.headers.get(b"x-forwarded-proto") == b"https" else self.request.scope["scheme"]
        return f"{scheme}://{host}{PATH}/{ACCOUNT}/{urllib.parse.quote(name)}"

    def _arn(self, name: str) -> str:
        return queues.arn(name, self.region)


def _resource(error: SqsError) -> SqsError:
    """Tasks are told of a queue that is missing in other words."""
    return SqsError("ResourceNotFoundException", error.message) if error.code == "QueueDoesNotExist" else error


def state_of(server: ServerState) -> SqsState:
    if server.sqs is None:
        server.sqs = SqsState(server)
    found: SqsState = server.sqs
    return found


ACTIONS: dict[str, Callable[[Actions, Result], Awaitable[Result | None]]] = {
    "SendMessage": Actions.send_message,
    "SendMessageBatch": Actions.send_message_batch,
    "ReceiveMessage": Actions.receive_message,
    "DeleteMessage": Actions.delete_message,
    "DeleteMessageBatch": Actions.delete_message_batch,
    "ChangeMessageVisibility": Actions.change_message_visibility,
    "ChangeMessageVisibilityBatch": Actions.change_message_visibility_batch,
    "CreateQueue": Actions.create_queue,
    "GetQueueUrl": Actions.get_queue_url,
    "ListQueues": Actions.list_queues,
    "ListDeadLetterSourceQueues": Actions.list_dead_letter_source_queues,
    "GetQueueAttributes": Actions.get_queue_attributes,
    "SetQueueAttributes": Actions.set_queue_attributes,
    "DeleteQueue": Actions.delete_queue,
    "PurgeQueue": Actions.purge_queue,
    "TagQueue": Actions.tag_queue,
    "UntagQueue": Actions.untag_queue,
    "ListQueueTags": Actions.list_queue_tags,
    "AddPermission": Actions.change_permission,
    "RemovePermission": Actions.change_permission,
    "StartMessageMoveTask": Actions.start_message_move_task,
    "CancelMessageMoveTask": Actions.cancel_message_move_task,
    "ListMessageMoveTasks": Actions.list_message_move_tasks,
}
