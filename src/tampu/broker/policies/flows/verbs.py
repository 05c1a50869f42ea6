"""The verbs of flows: publish, get, list, wait, cancel, replay, and adding members while a flow runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.audit import Recording
from tampu.broker.core import Core, Pause, PublishSet, Read, Steps, WaitForEnd
from tampu.broker.policies import uses
from tampu.broker.policies.flows import circles, ids, stored
from tampu.broker.policies.flows.graph import Members, checked
from tampu.broker.publish import PublishVerbs
from tampu.engines import port
from tampu.engines.port import Document
from tampu.model.errors import InvalidMessage, InvalidState, NotFound, VersionConflict
from tampu.model.flows import FlowMember, FlowMemberView, FlowPage, FlowRecord
from tampu.model.message import Lease, Message, NewMessage, State
from tampu.model.outcome import Outcome
from tampu.model.states import has_ended
from tampu.model.times import SECOND, Duration, duration, moment, moment_or_none

_TRIES = 20
_STEP = 500
_CANCELLED = {stored.WORDS[stored.OPEN], stored.WORDS[stored.BLOCKED]}
"""Members in these states are cancelled with their flow."""
MOST_SHOWN = 20_000
_MOST_AFTER = 20
_FIRST_PAUSE, _LAST_PAUSE, _GROWTH = 0.002, 0.5, 1.3
_MOST_LOOKED_AT = 2000


class FlowVerbs(Recording):
    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = tenant

    # -- publish

    def publish_flow(
        self,
        members: Sequence[FlowMember],
        *,
        name: str = "flow",
        correlation_id: str | None = None,
        id: str | None = None,
    ) -> Steps[str]:
        """Publish a flow, all of it or nothing; its id. Members without parents are ready, the others are held.

        All members get the same correlation id: that of the flow, or ``correlation_id``. With an ``id`` of your own
        (`ids.new_flow`) it is safe to publish again: the flow that has it is returned.
        """
        named = validate.name(name, "name")
        made = checked(members)
        now: int = yield Read(lambda engine: engine.now())
        flow = ids.new_flow(now) if id is None else ids.check_flow(validate.id_text(id))
        story = flow if correlation_id is None else validate.text(correlation_id, "correlation_id", 256)
        part = ids.part_of(flow)
        head = stored.Head(named, now, self.actor.name, story, len(members), made.queues)
        self._check_results(made)
        publishes = self._publishes(made.messages(part, members, story))
        for _ in range(_TRIES):
            begin: list[Any] = yield Read(
                lambda engine: uses.changes(engine, self.tenant, [(stored.FOLLOWER, stored.FOLLOWER)])
            )
            first = self._put(stored.FLOW, flow, head, 0)
            try:
                yield port.Together(
                    self.tenant, [*begin, first, self._put(stored.PART, part, made.part(flow), 0), *publishes]
                )
            except VersionConflict:
                taken = yield from self._document(stored.PART, part)
                known = yield from self._document(stored.FLOW, flow)
                if known is None and taken is not None and id is not None:
                    raise InvalidMessage(
                        f"{flow} is an id in another flow", field="id", hint="leave it out, or make another one"
                    ) from None
                if known is None:  # another process has begun the follower
                    continue
                if id is None:
                    flow = ids.new_flow(now)
                    part = ids.part_of(flow)
                    publishes = self._publishes(made.messages(part, members, story))
                    continue
            return flow
        raise VersionConflict("other processes keep publishing flows", hint="try again")

    def _publishes(self, by_queue: dict[str, list[NewMessage]]) -> list[Any]:
        """The calls that store the messages of each queue."""
        verbs = PublishVerbs(self.core, self.tenant)
        calls: list[Any] = []
        for queue, news in by_queue.items():
            if self.core.settings.get(self.tenant, queue).broadcast and any(new.hold for new in news):
                raise InvalidMessage(
                    f"{queue} is a broadcast queue: its messages cannot wait for others", field="members",
                    hint="name the queue of a subscription's worker instead",
                )  # fmt: skip
            step = verbs.policy_publishing(validate.name(queue, "queue"), news, complete=False)
            calls += step.calls if isinstance(step, PublishSet) else [step]
        return [msgspec.structs.replace(call, simple=False) for call in calls]

    def _check_results(self, made: Members) -> None:
        for queue in sorted(made.feeding):
            if not self.core.settings.get(self.tenant, validate.name(queue, "queue")).result_ttl_us:
                raise InvalidMessage(
                    f"queue {queue} keeps no results, and members of the flow wait for some", field="members",
                    hint=f"tampu queues put {queue} --set result_ttl=1d",
                )  # fmt: skip

    def add_to_flow(
        self,
        lease: Lease | str,
        members: Sequence[FlowMember],
        *,
        n: int = 1,
        joins: bool = True,
        id: str | None = None,
    ) -> Steps[list[str]]:
        """Add members while the member of this lease runs; their ids. They run after those that they name.

        With ``joins``, who waits for the running member also waits for the new ones that nobody waits for. The same
        ``n`` of the same message adds only once, in whatever attempt. Raises `LeaseLost`; then nothing was added. A
        receipt needs the ``id`` of its message.
        """
        receipt, adder = lease_of(lease, id)
        validate.whole(n, "n", 1, 1_000_000)
        old = yield from self._document(stored.PART, ids.part_of(adder)) if ids.is_member(adder) else _nothing()
        if old is None:
            raise InvalidState("this message is not a member of a flow", hint="publish a flow with store.flows.publish")
        flow = stored.read_part(old.value).flow
        head = yield from self._head(flow)
        part = ids.derived_part(adder, n)
        known = yield from self._document(stored.PART, part)
        if known is not None:
            return [ids.member(part, number) for number in range(1, stored.read_part(known.value).size + 1)]
        if head.cancelled_us:
            raise InvalidState(f"flow {flow} was cancelled", hint="publish another flow")
        made = checked(members, adder=adder, joins=joins)
        yield from self._check_parents(flow, made)
        graph = made.part(flow)
        if joins:
            yield Read(lambda engine: circles.check_joins(engine, self.tenant, graph))
        self._check_results(made)
        queue = validate.name(receipt.rpartition("/")[0], "receipt")
        lease_us = self.core.settings.get(self.tenant, queue).lease_us
        yield port.Together(
            self.tenant,
            [
                port.Extend(self.tenant, [(queue, receipt, lease_us)], [adder]),
                self._put(stored.PART, part, graph),
                self._put(stored.LINK, f"{flow}/{adder}/{part}", made.queues),
                *self._publishes(made.messages(part, members, head.correlation_id, cause=adder)),
            ],
        )
        added = [ids.member(part, number) for number in range(1, len(members) + 1)]
        head = yield from self._head(flow)
        if head.cancelled_us:  # meanwhile, by who did not see the new ones yet
            for start in range(0, len(added), _STEP):
                yield self._cancelling(added[start : start + _STEP])
        return added

    def _cancelling(self, some: Sequence[str]) -> port.Cancel:
        return port.Cancel(self.tenant, some, reason="flow_cancelled", actor=self.actor.name)

    def _check_parents(self, flow: str, made: Members) -> Steps[None]:
        for part, highest in made.foreign.items():
            document = yield from self._document(stored.PART, part)
            found = None if document is None else stored.read_part(document.value)
            if found is None or found.flow != flow or highest > found.size:
                raise NotFound(f"{ids.member(part, highest)} is not a member of this flow", field="after")

    def _put(self, kind: str, name: str, value: Any, version: int | None = None) -> port.PutDocument:
        return port.PutDocument(kind, self.tenant, name, msgspec.json.encode(value), version)

    # -- reading

    def _document(self, kind: str, name: str) -> Steps[Document | None]:
        return (yield Read(lambda engine: engine.document(kind, self.tenant, name)))  # type: ignore[no-any-return]  # by the query

    def _head(self, flow: str) -> Steps[stored.Head]:
        document = yield from self._document(stored.FLOW, flow)
        if document is None:
            raise NotFound(f"no flow {flow}", field="id", hint="see tampu flow list; a flow is kept for 7 days")
        return stored.read_head(document.value)

    def flow_queues(self, id: str) -> Steps[set[str]]:
        """The queues of all members of a flow: who may do something to it has the permission in all of them."""
        flow = ids.check_flow(validate.id_text(id))
        head = yield from self._head(flow)
        links: list[Document] = yield Read(lambda engine: engine.documents(stored.LINK, self.tenant, f"{flow}/"))
        return {*head.queues, *(queue for link in links for queue in stored.read_queues(link.value))}

    def member_queues(self, members: Iterable[str]) -> Steps[dict[str, str]]:
        """The queue of each of these members, as far as they are members of a flow."""
        graphs: dict[str, stored.Graph | None] = {}
        found: dict[str, str] = {}
        for id in members:
            part, number = stored.place_of(validate.id_text(id))
            if part not in graphs:
                document = yield from self._document(stored.PART, part)
                graphs[part] = None if document is None else stored.Graph(stored.read_part(document.value))
            graph = graphs[part]
            if graph is not None and 1 <= number <= graph.size:
                found[id] = graph.of("queues", number)
        return found

    def get_flow(self, id: str, *, limit: int = 0) -> Steps[FlowRecord]:
        """A flow with its first ``limit`` members. Raises `NotFound`."""
        flow = ids.check_flow(validate.id_text(id))
        validate.whole(limit, "limit", 0, MOST_SHOWN)
        head = yield from self._head(flow)
        found: FlowRecord = yield Read(lambda engine: _record(engine, self.tenant, flow, head, limit))
        return found

    def list_flows(
        self, *, name: str | None = None, status: str | None = None, limit: int = 100, after: str | None = None
    ) -> Steps[FlowPage]:
        """Flows, the newest first: all of them, or those with a name or a status. A part of the newest ones that it
        looks at may match; then the cursor goes on."""
        return (yield from self.flows_for(lambda _queues: True, name, status, limit, after))

    def flows_for(
        self, may: Callable[[set[str]], bool], name: str | None, status: str | None, limit: int, after: str | None
    ) -> Steps[FlowPage]:
        """`list_flows` of those for whose queues ``may`` is true."""
        validate.whole(limit, "limit", 1, 1000)
        if status not in (None, "running", "done", "failed", "cancelled"):
            raise InvalidMessage(
                f"{status!r:.50} is no status of a flow", field="status", hint="running, done, failed or cancelled"
            )
        cursor = "" if after is None else ids.check_flow(validate.id_text(after))
        found: list[FlowRecord] = []
        looked_at = 0
        while len(found) < limit and looked_at < _MOST_LOOKED_AT:
            page: list[Document] = yield Read(
                lambda engine, c=cursor: engine.documents(stored.FLOW, self.tenant, after=c, limit=limit)  # type: ignore[misc]  # bound now
            )
            for document in page:
                cursor, looked_at = document.name, looked_at + 1
                head = stored.read_head(document.value)
                if name not in (None, head.name) or not may((yield from self.flow_queues(document.name))):
                    continue
                one: FlowRecord = yield Read(
                    lambda engine, d=document, h=head: _record(engine, self.tenant, d.name, h, 0)  # type: ignore[misc]  # bound now
                )
                if status in (None, one.status):
                    found.append(one)
                    if len(found) == limit:
                        break
            if len(page) < limit and (not page or cursor == page[-1].name):
                return FlowPage(found)
        return FlowPage(found, cursor)

    def wait_flow(self, id: str, *, wait: Duration = 0) -> Steps[FlowRecord]:
        """The flow when it has ended, or as it is after ``wait``."""
        until = time.monotonic() + duration(wait, "wait") / SECOND
        pause = _FIRST_PAUSE
        while True:
            found = yield from self.get_flow(id)
            left = until - time.monotonic()
            if found.status != "running" or left <= 0 or self.core.closed:
                return found
            head = yield from self._head(id)
            last = ids.member(ids.part_of(id), head.size)
            message: Message | None = yield Read(lambda engine, i=last: engine.get(self.tenant, i))  # type: ignore[misc]  # bound now
            if message is None or has_ended(message.state):  # others are open, or the follower has yet to count it
                yield Pause(min(left, pause))
            else:
                yield WaitForEnd(self.tenant, last, min(left, pause))
            pause = min(_LAST_PAUSE, pause * _GROWTH)

    # -- all of it

    def cancel_flow(self, id: str) -> Steps[FlowRecord]:
        """Cancel all members that have not ended; workers of those that run are asked to stop. A done flow stays
        done."""
        flow = ids.check_flow(validate.id_text(id))
        found = yield from self.get_flow(flow)
        if not found.counts.keys() & _CANCELLED:
            return found
        for _ in range(_TRIES):
            document = yield from self._document(stored.FLOW, flow)
            head = yield from self._head(flow)
            assert document is not None
            if head.cancelled_us:
                break
            now: int = yield Read(lambda engine: engine.now())
            changed = msgspec.structs.replace(head, cancelled_us=now)
            try:
                put = self._put(stored.FLOW, flow, changed, document.version)
                yield from self.recorded([put], "flow.cancel", flow)
            except VersionConflict:
                continue
            break
        open_ones = yield from self._members(flow, (stored.OPEN, stored.BLOCKED))
        for start in range(0, len(open_ones), _STEP):
            yield self._cancelling(open_ones[start : start + _STEP])
        return (yield from self.get_flow(flow))

    def replay_flow(self, id: str, *, failed_only: bool = True) -> Steps[Any]:
        """Replay the dead members: those that wait for them go on then. Returns how many there were.

        With ``failed_only=False``, publish all that the flow was published with again, as a new flow; returns its id.
        """
        flow = ids.check_flow(validate.id_text(id))
        head = yield from self._head(flow)
        if not failed_only:
            return (yield from self._again(flow, head))
        if head.cancelled_us:
            raise InvalidState(
                f"flow {flow} was cancelled", hint="publish it again: replay with failed_only=False, or --all"
            )
        yield from self.record("flow.replay", flow)
        dead = yield from self._members(flow, (stored.DEAD,))
        count = 0
        for start in range(0, len(dead), _STEP):
            some: list[str] = []
            most: list[int] = []
            for one in dead[start : start + _STEP]:
                message: Message | None = yield Read(lambda engine, i=one: engine.get(self.tenant, i))  # type: ignore[misc]  # bound now
                if message is not None and message.state is State.DEAD:
                    own = message.body.own_max_attempts
                    some.append(one)
                    most.append(own or self.core.settings.get(self.tenant, message.queue).max_attempts)
            if some:
                outcomes: list[Outcome] = yield port.Replay(self.tenant, some, most, self.actor.name)
                count += sum(outcome.ok for outcome in outcomes)
        return count

    def _again(self, flow: str, head: stored.Head) -> Steps[str]:
        part = ids.part_of(flow)
        document = yield from self._document(stored.PART, part)
        assert document is not None
        graph = stored.Graph(stored.read_part(document.value))
        members = []
        for number in range(1, graph.size + 1):
            one = ids.member(part, number)
            message: Message | None = yield Read(lambda engine, i=one: engine.get(self.tenant, i))  # type: ignore[misc]  # bound now
            if message is None:
                raise NotFound(
                    f"member {one} was removed, so the flow cannot be published again", field="id",
                    hint="raise the retention of its queue, or publish the flow from your program",
                )  # fmt: skip
            new = validate.from_body(message.body, hold=None, correlation_id=None)
            waits = graph.part.sets[graph.set_of[number]] if number in graph.set_of else None
            members.append(
                FlowMember(
                    queue=graph.of("queues", number),
                    message=new,
                    after=() if waits is None else [(run.first - 1, run.count) for run in waits.parents],
                    on_failure=graph.policy(number),
                    into=graph.of("intos", number),
                    many=None if waits is None else waits.many,
                )
            )
        yield from self.record("flow.replay", flow, {"all": True})
        return (yield from self.publish_flow(members, name=head.name))

    def _members(self, flow: str, letters: Sequence[str]) -> Steps[list[str]]:
        found: list[str] = yield Read(lambda engine: [
            ids.member(part, number)
            for part, graph in _parts(engine, self.tenant, flow)
            for number, letter in enumerate(_letters(engine, self.tenant, part, graph.size), 1)
            if letter in letters
        ])  # fmt: skip
        return found

    def forget_flow(self, flow: str, kept_us: int) -> Steps[int]:
        """Remove what is stored of a flow that has ended so long ago. Returns in how many microseconds to look again;
        0: it is removed."""
        document = yield from self._document(stored.COUNT, flow)
        head_document = yield from self._document(stored.FLOW, flow)
        now: int = yield Read(lambda engine: engine.now())
        if document is not None and head_document is not None:
            counts = stored.read_counts(document.value)
            if not counts.ended_us or counts.letters.get(stored.BLOCKED):
                return kept_us
            if counts.ended_us + kept_us > now:
                return counts.ended_us + kept_us - now
        calls: list[Any] = yield Read(lambda engine: _removal(engine, self.tenant, flow))
        for start in range(0, len(calls), _STEP):
            yield port.Together(self.tenant, calls[start : start + _STEP])
        return 0


def _nothing() -> Steps[None]:
    return None
    yield


def lease_of(lease: Lease | str, id: str | None) -> tuple[str, str]:
    """(receipt, id of the message)"""
    if isinstance(lease, Lease):
        return lease.receipt, lease.id
    if not isinstance(lease, str) or not 0 < len(lease) <= 512 or "/" not in lease:
        raise InvalidMessage("pass the lease, or its receipt", field="lease")
    if id is None:
        raise InvalidMessage("pass the id of the message with its receipt", field="id")
    return lease, validate.id_text(id)


def _parts(engine: port.Engine, tenant: str, flow: str) -> list[tuple[str, stored.Graph]]:
    """The parts of a flow, in the order in which they were added as far as that is known."""
    links = engine.documents(stored.LINK, tenant, f"{flow}/")
    names = [ids.part_of(flow), *(link.name.rpartition("/")[2] for link in links)]
    found = [(name, engine.document(stored.PART, tenant, name)) for name in names]
    return [(name, stored.Graph(stored.read_part(one.value))) for name, one in found if one is not None]


def _letters(engine: port.Engine, tenant: str, part: str, size: int) -> str:
    """The letters of all members of a part; those that the follower has not seen are open."""
    chunks = engine.documents(stored.STATE, tenant, f"{part}/")
    return "".join(stored.read_chunk(chunk.value).letters for chunk in chunks) or stored.OPEN * size


def _record(engine: port.Engine, tenant: str, flow: str, head: stored.Head, limit: int) -> FlowRecord:
    document = engine.document(stored.COUNT, tenant, flow)
    counts = stored.Counts({stored.OPEN: head.size}) if document is None else stored.read_counts(document.value)
    words: dict[str, int] = {}
    for letter, n in counts.letters.items():
        if n:
            words[stored.WORDS[letter]] = words.get(stored.WORDS[letter], 0) + n
    return FlowRecord(
        id=flow,
        name=head.name,
        status=stored.status(head, counts),  # type: ignore[arg-type]  # one of the four
        created_at=moment(head.created_us),
        by=head.actor,
        correlation_id=head.correlation_id,
        total=sum(counts.letters.values()),
        counts=words,
        ended_at=moment_or_none(counts.ended_us or None),
        members=tuple(_views(engine, tenant, flow, limit)) if limit else (),
    )


def _views(engine: port.Engine, tenant: str, flow: str, limit: int) -> list[FlowMemberView]:
    made: list[FlowMemberView] = []
    for part, graph in _parts(engine, tenant, flow):
        letters = _letters(engine, tenant, part, graph.size)
        for number in range(1, graph.size + 1):
            if len(made) == limit:
                return made
            made.append(_view(engine, tenant, part, graph, number, letters[number - 1]))
    return made


def _view(engine: port.Engine, tenant: str, part: str, graph: stored.Graph, number: int, letter: str) -> FlowMemberView:
    id = ids.member(part, number)
    state, error = stored.WORDS[letter], None
    if letter in (stored.OPEN, stored.DEAD):
        message = engine.get(tenant, id)
        if message is not None:
            state, error = str(message.state), message.last_error
    runs = graph.part.sets[graph.set_of[number]].parents if number in graph.set_of else []
    after = [
        ids.member(run.part or part, one)
        for run in runs[:_MOST_AFTER]
        for one in range(run.first, run.first + min(run.count, _MOST_AFTER))
    ]
    return FlowMemberView(
        id=id,
        queue=graph.of("queues", number),
        type=graph.of("types", number),
        state=state,
        parents=sum(run.count for run in runs),
        after=tuple(after[:_MOST_AFTER]),
        on_failure=graph.policy(number),
        error=error,
    )


def _removal(engine: port.Engine, tenant: str, flow: str) -> list[port.DeleteDocument]:
    """The calls that remove what is stored of a flow; its parts first, so that nothing begins again."""
    calls: list[port.DeleteDocument] = []
    links = engine.documents(stored.LINK, tenant, f"{flow}/")
    parts = [ids.part_of(flow), *(link.name.rpartition("/")[2] for link in links)]
    calls += [port.DeleteDocument(stored.PART, tenant, part) for part in parts]
    for part in parts:
        for kind in (stored.STATE, stored.WAIT, stored.EXTRA):
            calls += [port.DeleteDocument(kind, tenant, one.name) for one in engine.documents(kind, tenant, f"{part}/")]
    calls += [port.DeleteDocument(stored.FLOW, tenant, flow), port.DeleteDocument(stored.COUNT, tenant, flow)]
    return calls + [port.DeleteDocument(stored.LINK, tenant, link.name) for link in links]
