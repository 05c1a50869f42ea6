"""Flows of tasks and plain messages: `chain`, `group` and `App.flow`; and `FlowRun`, a flow that was published.

They only build the list of members that `Store.flows.publish` takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from tampu.broker import access
from tampu.broker.async_store import AsyncStore
from tampu.broker.core import Steps
from tampu.broker.policies.flows import ids
from tampu.broker.store import Store
from tampu.model.errors import InvalidMessage, InvalidState
from tampu.model.flows import FlowMember, FlowRecord, OnFailure
from tampu.model.message import Message, NewMessage, State
from tampu.model.times import SECOND, Duration, duration
from tampu.worker.current import running
from tampu.worker.exceptions import FlowFailed, TaskFailed
from tampu.worker.tasks import Task, TaskMessage

if TYPE_CHECKING:
    from tampu.worker.app import App
    from tampu.worker.current import Current

_FOR_EVER = 10 * 365 * 86_400.0


class PlainMessage(msgspec.Struct, frozen=True):
    """A message for a queue that is not published yet: what `message` returns."""

    queue: str
    new: NewMessage
    into: str | None = None


def message(queue: str, payload: Any = None, *, into: str | None = None, **options: Any) -> PlainMessage:
    """A message for a flow, with the options of `Store.publish`.

    ``into`` is the field of the payload that gets the results of the messages that it waits for. A message without a
    payload gets them as its payload.
    """
    if into is None and payload is None:
        into = ""
    try:
        return PlainMessage(queue, NewMessage(payload, **options), into)
    except TypeError as error:
        raise InvalidMessage(f"message takes no such option: {error}") from None


class Ends(NamedTuple):
    """The last members of a part of a flow: what comes next waits for these."""

    runs: tuple[Any, ...] = ()
    many: bool = False


class Members:
    """The members of a flow as they are placed one after the other."""

    def __init__(self) -> None:
        self.made: list[FlowMember] = []
        self.tasks: list[Task[Any, Any] | None] = []

    def place(self, element: Any, after: Ends, on_failure: OnFailure) -> Ends:
        if isinstance(element, Chain | Group):
            return element.place(self, after, on_failure)
        if not isinstance(element, TaskMessage | PlainMessage):
            raise InvalidMessage(
                f"a flow is made of messages, not of {type(element).__name__}", field="members",
                hint="pass task.message(...), tampu.message(queue, payload), a chain or a group",
            )  # fmt: skip
        into, new = element.into, element.new
        if not after.runs:
            if isinstance(element, TaskMessage):
                new = _whole(element)
            into = None
        self.made.append(
            FlowMember(
                queue=element.queue, message=new, after=after.runs, on_failure=on_failure, into=into,
                many=after.many if after.runs else None,
            )
        )  # fmt: skip
        self.tasks.append(element.task if isinstance(element, TaskMessage) else None)
        return Ends((len(self.made) - 1,))


def _whole(element: TaskMessage[Any]) -> NewMessage:
    """The message of a call that gets no results; raises if an argument is missing."""
    _ = element.stored
    return element.new


class _Flow:
    """What chains and groups have in common."""

    def __init__(self, elements: Iterable[Any], on_failure: OnFailure = "fail") -> None:
        self.elements = list(elements)
        self.on_failure = on_failure
        if not self.elements:
            raise InvalidMessage("a chain or group needs at least one message", field="members")

    def place(self, members: Members, after: Ends, on_failure: OnFailure) -> Ends:
        raise NotImplementedError

    def then(self, *elements: Any, on_failure: OnFailure = "fail") -> Chain:
        """This, and after all of it the next ones in turn. The first gets the results of the last members of this."""
        return Chain([self, *elements], on_failure)

    def _app(self) -> App | None:
        for element in self.elements:
            found: App | None = None
            if isinstance(element, TaskMessage):
                found = element.task.app
            elif isinstance(element, _Flow):
                found = element._app()
            if found is not None:
                return found
        return None

    def builder(self, store: Store | App | None, name: str, correlation_id: str | None) -> FlowBuilder:
        source = store or self._app()
        if source is None:
            raise InvalidMessage("no task says which store", field="store", hint="pass it: flow.publish(store)")
        built = FlowBuilder(source, name, correlation_id)
        built.add(self)
        return built

    def publish(
        self, store: Store | App | None = None, *, name: str = "flow", correlation_id: str | None = None
    ) -> FlowRun:
        """Publish all messages, or nothing. The store is that of the tasks, unless one is passed."""
        return self.builder(store, name, correlation_id).publish()

    async def publish_async(
        self, store: Store | App | None = None, *, name: str = "flow", correlation_id: str | None = None
    ) -> FlowRun:
        return await self.builder(store, name, correlation_id).publish_async()


class Chain(_Flow):
    """One after the other: each gets the result of the one before."""

    def place(self, members: Members, after: Ends, on_failure: OnFailure) -> Ends:
        policy = on_failure
        for element in self.elements:
            after = members.place(element, after, policy)
            policy = self.on_failure
        return after


class Group(_Flow):
    """Side by side. What comes after waits for all of them, and gets the list of their results."""

    def place(self, members: Members, after: Ends, on_failure: OnFailure) -> Ends:
        runs: list[Any] = []
        for element in self.elements:
            for end in members.place(element, after, on_failure).runs:
                first, count = end if isinstance(end, tuple) else (end, 1)
                if runs and sum(runs[-1]) == first:
                    runs[-1] = (runs[-1][0], runs[-1][1] + count)
                else:
                    runs.append((first, count))
        return Ends(tuple(runs), many=True)


def chain(*elements: Any, on_failure: OnFailure = "fail") -> Chain:
    """Messages that run one after the other; each gets the result of the one before as the argument that it lacks."""
    return Chain(elements, on_failure)


def group(elements: Iterable[Any]) -> Group:
    """Messages that run side by side. ``group(...).then(message)`` runs when all are done, with the list of results."""
    return Group(elements)


def map(task: Task[Any, Any], items: Iterable[Any]) -> Group:
    """A group with a call of the task for each item."""
    return Group(task.message(item) for item in items)


class FlowNode:
    """Members of a flow that others can wait for: what `FlowBuilder.add` returns."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends


class FlowBuilder:
    """A flow of any shape. Its block publishes it: ``with app.flow("nightly") as flow: …``."""

    def __init__(self, source: Store | App, name: str = "flow", correlation_id: str | None = None) -> None:
        self._source = source
        self._name = name
        self._correlation_id = correlation_id
        self._members = Members()
        self._run: FlowRun | None = None
        self._last = Ends()

    def add(self, element: Any, *, after: Sequence[FlowNode] = (), on_failure: OnFailure = "fail") -> FlowNode:
        """Add a message, a chain or a group, which waits for all nodes in ``after``. If one of these fails:

        ``fail`` waits until it is replayed, and the flow has failed; ``skip`` cancels what was added, and the flow goes
        on; ``run`` runs it, with None for the missing result.
        """
        if self._run is not None:
            raise InvalidState("this flow was published", hint="add to it from a task: tampu.current().flow.add")
        nodes = [after] if isinstance(after, FlowNode) else list(after)
        runs = tuple(run for node in nodes for run in node._ends.runs)
        waits = Ends(runs, many=len(nodes) > 1 or any(node._ends.many for node in nodes))
        self._last = self._members.place(element, waits, on_failure)
        return FlowNode(self._last)

    def _story(self) -> str | None:
        """Published by a task, it belongs to the story of its message."""
        work = running()
        return self._correlation_id or (None if work is None else work.correlation_id)

    def _made(self, id: str) -> FlowRun:
        app = None if isinstance(self._source, Store) else self._source
        members = self._members
        ends = [
            (number, members.tasks[number])
            for run in self._last.runs
            for number in (range(run[0], sum(run)) if isinstance(run, tuple) else (run,))
        ]
        self._run = FlowRun(self._source if app is None else app, id, ends, many=self._last.many)
        return self._run

    def publish(self) -> FlowRun:
        """Publish all of it, or nothing. Once it is published, this returns the same run."""
        if self._run is not None:
            return self._run
        return self._made(
            _store(self._source).flows.publish(self._members.made, name=self._name, correlation_id=self._story())
        )

    async def publish_async(self) -> FlowRun:
        if self._run is not None:
            return self._run
        store = _async_store(self._source)
        return self._made(await store.flows.publish(self._members.made, name=self._name, correlation_id=self._story()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.publish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.publish_async()


def _store(source: Store | App) -> Store:
    return source if isinstance(source, Store) else source.store


def _async_store(source: Store | App) -> AsyncStore:
    return access.awaitable(source) if isinstance(source, Store) else source.store_async


class CurrentFlow:
    """The flow of the running task: `tampu.current().flow`."""

    def __init__(self, work: Current) -> None:
        self._work = work

    def add(
        self,
        *elements: Any,
        after: Sequence[str] | None = None,
        on_failure: OnFailure = "fail",
        joins: bool = True,
    ) -> list[str]:
        """Add messages, chains and groups to the flow; the ids of the new members.

        They run when this task is done, or after the members in ``after``, by their ids (``[]``: at once). With
        ``joins``, who waits for this task waits for them too, and gets their results after its own. If the task is run
        again, its nth call adds nothing new: it returns what the nth call of an earlier attempt has added.
        """
        return access.run(self._store, self._steps(elements, after, on_failure, joins=joins))

    async def add_async(
        self,
        *elements: Any,
        after: Sequence[str] | None = None,
        on_failure: OnFailure = "fail",
        joins: bool = True,
    ) -> list[str]:
        return await asyncio.to_thread(self.add, *elements, after=after, on_failure=on_failure, joins=joins)

    @property
    def _store(self) -> Store:
        return self._work.task.app.store

    def _steps(
        self, elements: Sequence[Any], after: Sequence[str] | None, on_failure: OnFailure, *, joins: bool
    ) -> Steps[list[str]]:
        self._work._added += 1
        members = Members()
        waits = Ends(tuple([self._work.id] if after is None else after))
        for element in elements:
            members.place(element, Ends(waits.runs, many=len(waits.runs) > 1), on_failure)
        verbs = access.verbs(self._store)
        return verbs.add_to_flow(self._work.lease, members.made, n=self._work._added, joins=joins)


class FlowRun:
    """A flow that was published."""

    def __init__(
        self,
        source: Store | App,
        id: str,
        ends: Sequence[tuple[int, Task[Any, Any] | None]] = (),
        *,
        many: bool = False,
    ) -> None:
        self._source = source
        self.id = id
        self._ends = ends
        self._many = many

    def __repr__(self) -> str:
        return f"<flow {self.id}>"

    def get(self, *, limit: int = 0) -> FlowRecord:
        """The flow as it is now, with its first ``limit`` members."""
        return _store(self._source).flows.get(self.id, limit=limit)

    def wait(self, timeout: Duration | None = None) -> FlowRecord:
        """The flow when it has ended: done, failed or cancelled. Raises `TimeoutError`."""
        return self._ended(_store(self._source).flows.wait(self.id, wait=_seconds(timeout)))

    async def wait_async(self, timeout: Duration | None = None) -> FlowRecord:
        return self._ended(await _async_store(self._source).flows.wait(self.id, wait=_seconds(timeout)))

    def result(self, timeout: Duration | None = None) -> Any:
        """The result of the last member; of a group, the list of theirs. Raises `FlowFailed`, and `TimeoutError`."""
        self._check_done(self.wait(timeout))
        found = [self._read(_store(self._source).get(id), task) for id, task in self._last()]
        return found if self._many else found[0]

    async def result_async(self, timeout: Duration | None = None) -> Any:
        self._check_done(await self.wait_async(timeout))
        store = _async_store(self._source)
        found = [self._read(await store.get(id), task) for id, task in self._last()]
        return found if self._many else found[0]

    def cancel(self) -> FlowRecord:
        """Cancel all members that have not ended."""
        return _store(self._source).flows.cancel(self.id)

    async def cancel_async(self) -> FlowRecord:
        return await _async_store(self._source).flows.cancel(self.id)

    def replay(self, *, failed_only: bool = True) -> FlowRun:
        """Replay the dead members; those that wait for them go on. Or publish all of it again, as a new flow."""
        return self._replayed(_store(self._source).flows.replay(self.id, failed_only=failed_only))

    async def replay_async(self, *, failed_only: bool = True) -> FlowRun:
        return self._replayed(await _async_store(self._source).flows.replay(self.id, failed_only=failed_only))

    def _replayed(self, found: Any) -> FlowRun:
        return FlowRun(self._source, found, self._ends, many=self._many) if isinstance(found, str) else self

    def _ended(self, found: FlowRecord) -> FlowRecord:
        if found.status == "running":
            raise TimeoutError(f"{self!r} has not ended yet: {found.counts.get('open', 0)} of {found.total} are open")
        return found

    @staticmethod
    def _check_done(found: FlowRecord) -> None:
        if found.status != "done":
            raise FlowFailed(found)

    def _last(self) -> list[tuple[str, Task[Any, Any] | None]]:
        part = ids.part_of(self.id)
        return [(ids.member(part, number + 1), task) for number, task in self._ends]

    @staticmethod
    def _read(found: Message, task: Task[Any, Any] | None) -> Any:
        if found.state is not State.DONE:
            raise TaskFailed(found)
        return found.result if task is None else task.arguments.read_result(found.result_raw)


def _seconds(timeout: Duration | None) -> float:
    return _FOR_EVER if timeout is None else duration(timeout, "timeout") / SECOND
