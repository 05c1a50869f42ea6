"""`Store`, which `tampu.open` returns: the verbs as blocking methods."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tampu.broker.admin.checks import Checks, Finding
from tampu.broker.agents.verbs import AgentVerbs
from tampu.broker.atomic import Atomic, Unit
from tampu.broker.audit import current_user
from tampu.broker.audit_verbs import AuditVerbs
from tampu.broker.core import Core, PublishSet, Read, Step, Steps, WaitForMessages, without_errors
from tampu.broker.dead.verbs import DeadVerbs
from tampu.broker.erasure.verbs import ErasureVerbs
from tampu.broker.notes import Notes
from tampu.broker.policies.kinds import PolicyVerbs
from tampu.broker.schedules.verbs import ScheduleVerbs
from tampu.broker.streams.stream import PolledStream, Stream, StreamRequest
from tampu.broker.topology.verbs import TopologyVerbs
from tampu.broker.trace_verbs import TraceVerbs
from tampu.model.audit import Actor
from tampu.model.errors import InvalidState, Unavailable
from tampu.model.times import Duration

P = ParamSpec("P")
R = TypeVar("R")


class AllVerbs(
    ScheduleVerbs,
    Atomic,
    Checks,
    DeadVerbs,
    Notes,
    AgentVerbs,
    AuditVerbs,
    TraceVerbs,
    PolicyVerbs,
    TopologyVerbs,
    ErasureVerbs,
):
    """All verbs, for one tenant."""


def shown_as(method: Any, verb: Callable[..., Any]) -> Any:
    """The method with the signature of the verb in `help`: ``-> Message`` instead of ``-> Steps[Message]``."""
    shown = types.FunctionType(verb.__code__, verb.__globals__, verb.__name__, verb.__defaults__, verb.__closure__)
    shown.__kwdefaults__ = verb.__kwdefaults__
    returns = verb.__annotations__["return"].removeprefix("Steps[").removesuffix("]")
    shown.__annotations__ = method.__annotations__ = {**verb.__annotations__, "return": returns}
    method.__wrapped__ = shown
    return method


def blocking(verb: Callable[Concatenate[Any, P], Steps[R]]) -> Callable[Concatenate[Any, P], R]:
    """The verb as a method that returns when it is done. A remote store has its own class of verbs."""
    name = verb.__name__

    @functools.wraps(verb)
    def method(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._drive(getattr(self._verbs, name)(*args, **kwargs))  # type: ignore[no-any-return]  # R, by the driver

    return shown_as(method, verb)  # type: ignore[no-any-return]  # wraps() names self; P is what matters


class Part:
    """Some of the verbs of a store. ``drive`` carries out a verb: for a thread or, awaited, for a task."""

    def __init__(self, verbs: AllVerbs, drive: Callable[[Steps[Any]], Any]) -> None:
        self._verbs = verbs
        self._drive = drive


class Queues(Part):
    """The queues and their settings, by name; ``shop.*`` has those of a scope, ``*`` those of all queues."""

    put = blocking(AllVerbs.put_config)
    get = blocking(AllVerbs.get_config)
    sources = blocking(AllVerbs.config_sources)
    list = blocking(AllVerbs.list_queues)
    reset = blocking(AllVerbs.reset_config)
    remove = blocking(AllVerbs.remove_queue)


class Schedules(Part):
    """Messages that are published at set times, by name."""

    put = blocking(AllVerbs.put_schedule)
    get = blocking(AllVerbs.get_schedule)
    list = blocking(AllVerbs.list_schedules)
    delete = blocking(AllVerbs.delete_schedule)
    pause = blocking(AllVerbs.pause_schedule)
    resume = blocking(AllVerbs.resume_schedule)
    fire = blocking(AllVerbs.fire_schedule)


class Followers(Part):
    """Policies that act on what has happened, by name. They belong to the whole store, not to the tenant."""

    list = blocking(AllVerbs.list_followers)
    resume = blocking(AllVerbs.resume_follower)
    remove = blocking(AllVerbs.remove_follower)


class Agents(Part):
    """Maintenance tasks and followers, by name. They belong to the whole store, not to the tenant."""

    list = blocking(AllVerbs.list_agents)
    get = blocking(AllVerbs.get_agent)
    run = blocking(AllVerbs.run_agent)
    pause = blocking(AllVerbs.pause_agent)
    resume = blocking(AllVerbs.resume_agent)


class Schemas(Part):
    """JSON Schemas that payloads must match, by name."""

    put = blocking(AllVerbs.put_schema)
    get = blocking(AllVerbs.get_schema)
    list = blocking(AllVerbs.list_schemas)
    delete = blocking(AllVerbs.delete_schema)
    example = blocking(AllVerbs.example_of_schema)


class Rules(Part):
    """What happens to messages for which an expression is true, by name."""

    put = blocking(AllVerbs.put_rule)
    get = blocking(AllVerbs.get_rule)
    list = blocking(AllVerbs.list_rules)
    delete = blocking(AllVerbs.delete_rule)
    test = blocking(AllVerbs.test_rule)


class Subscriptions(Part):
    """Who gets what is published to broadcast queues, by queue and subscriber."""

    put = blocking(AllVerbs.put_subscription)
    get = blocking(AllVerbs.get_subscription)
    list = blocking(AllVerbs.list_subscriptions)
    delete = blocking(AllVerbs.delete_subscription)


class Alerts(Part):
    """When to warn, by name."""

    put = blocking(AllVerbs.put_alert)
    get = blocking(AllVerbs.get_alert)
    list = blocking(AllVerbs.list_alerts)
    delete = blocking(AllVerbs.delete_alert)
    status = blocking(AllVerbs.alert_status)


class Holds(Part):
    """Legal holds: what must not be removed, by name."""

    put = blocking(AllVerbs.put_hold)
    get = blocking(AllVerbs.get_hold)
    list = blocking(AllVerbs.list_holds)
    delete = blocking(AllVerbs.delete_hold)


class Erasures(Part):
    """Reports of `Store.erase`, by id."""

    get = blocking(AllVerbs.get_erasure)
    list = blocking(AllVerbs.list_erasures)
    check = blocking(AllVerbs.check_erasure)


class Topology(Part):
    """Everything that is configured, as one file: applied as one unit, and exported."""

    apply = blocking(AllVerbs.apply_topology)
    export = blocking(AllVerbs.export_topology)


class Dead(Part):
    """Dead letters of all queues."""

    list = blocking(AllVerbs.list_dead)
    groups = blocking(AllVerbs.group_dead)
    replay = blocking(AllVerbs.replay_dead)
    purge = blocking(AllVerbs.purge_dead)
    replays = blocking(AllVerbs.list_dead_replays)
    get = blocking(AllVerbs.get_dead_replay)
    cancel = blocking(AllVerbs.cancel_dead_replay)
    undo = blocking(AllVerbs.undo_dead_replay)


class Webhooks(Part):
    """What rules and alerts send to urls."""

    put_secret = blocking(AllVerbs.put_webhook_secret)
    has_secret = blocking(AllVerbs.has_webhook_secret)


class Patterns(Part):
    """What reviewers see and decide, by name."""

    put = blocking(AllVerbs.put_pattern)
    get = blocking(AllVerbs.get_pattern)
    list = blocking(AllVerbs.list_patterns)
    delete = blocking(AllVerbs.delete_pattern)


class Reviews(Part):
    """Messages that wait for a person's decision, by the id of the message."""

    list = blocking(AllVerbs.list_reviews)
    get = blocking(AllVerbs.get_review)
    claim = blocking(AllVerbs.claim_review)
    decide = blocking(AllVerbs.decide_review)
    comment = blocking(AllVerbs.comment_review)
    reassign = blocking(AllVerbs.reassign_review)
    preview = blocking(AllVerbs.preview_review)
    ask = blocking(AllVerbs.ask_review)


class Store:
    """Client for the queues of one tenant. Threads may share it. Close it, or use it in a ``with`` block."""

    def __init__(
        self,
        core: Core,
        tenant: str,
        on_close: Callable[[], None],
        verbs: type[AllVerbs] = AllVerbs,
        actor: str | None = None,
    ) -> None:
        self._core = core
        self._verbs = verbs(core, tenant).by(current_user() if actor is None else Actor(actor))
        self._on_close = on_close
        self._pid = os.getpid()
        self.queues = Queues(self._verbs, self._drive)
        self.schedules = Schedules(self._verbs, self._drive)
        self.followers = Followers(self._verbs, self._drive)
        self.agents = Agents(self._verbs, self._drive)
        self.schemas = Schemas(self._verbs, self._drive)
        self.rules = Rules(self._verbs, self._drive)
        self.subscriptions = Subscriptions(self._verbs, self._drive)
        self.alerts = Alerts(self._verbs, self._drive)
        self.topology = Topology(self._verbs, self._drive)
        self.dead = Dead(self._verbs, self._drive)
        self.webhooks = Webhooks(self._verbs, self._drive)
        self.holds = Holds(self._verbs, self._drive)
        self.erasures = Erasures(self._verbs, self._drive)
        self.patterns = Patterns(self._verbs, self._drive)
        self.reviews = Reviews(self._verbs, self._drive)

    @property
    def tenant(self) -> str:
        return self._verbs.tenant

    publish = blocking(AllVerbs.publish)
    publish_many = blocking(AllVerbs.publish_many)
    claim = blocking(AllVerbs.claim)
    ack = blocking(AllVerbs.ack)
    nack = blocking(AllVerbs.nack)
    reject = blocking(AllVerbs.reject)
    release = blocking(AllVerbs.release)
    settle = blocking(AllVerbs.settle)
    extend = blocking(AllVerbs.extend)
    get = blocking(AllVerbs.get)
    result = blocking(AllVerbs.result)
    messages = blocking(AllVerbs.messages)
    cancel = blocking(AllVerbs.cancel)
    free = blocking(AllVerbs.free)
    replay = blocking(AllVerbs.replay)
    purge = blocking(AllVerbs.purge)
    erase = blocking(AllVerbs.erase)
    stats = blocking(AllVerbs.stats)
    journal = blocking(AllVerbs.journal)
    audit = blocking(AllVerbs.audit)
    trace = blocking(AllVerbs.trace)
    pause = blocking(AllVerbs.pause)
    resume = blocking(AllVerbs.resume)
    drain = blocking(AllVerbs.drain)
    close_queue = blocking(AllVerbs.close_queue)
    get_document = blocking(AllVerbs.get_document)

    @contextlib.contextmanager
    def atomic(self) -> Iterator[Unit]:
        """Several calls as one unit: all of them take effect, or none.

        Inside the block, calls on the unit are checked and gathered. At its end they are sent as one call; an error
        inside the block sends nothing. Raises the error of the call that was refused, such as `QueueFull` or
        `LeaseLost`; then nothing has changed.
        """
        unit = Unit(self._verbs)
        try:
            yield unit
        finally:
            unit.end()
        self._drive(unit.steps())

    def stream(
        self,
        queues: str | Sequence[str],
        *,
        credit: int = 32,
        lease: Duration | None = None,
        worker: str | None = None,
    ) -> Stream:
        """Leases as messages arrive, at most ``credit`` unsettled at a time. Settling on the stream does not block.

        A server pushes messages over one connection. Other stores, and networks that only let plain HTTP through, are
        claimed from. Use it in a ``with`` block: its end waits until settlements are stored, and releases messages
        that you did not get.
        """
        request = StreamRequest.of(queues, credit, lease, worker)
        pushed = self._core.stream(self, request)
        return PolledStream(self, request) if pushed is None else pushed

    @contextlib.contextmanager
    def transaction(self, connection: Any = None) -> Iterator[Transaction]:
        """Publish and settle together with your own writes to the same store, all or nothing.

        Without a connection, write with ``tx.execute``. All other calls wait until the block ends, so keep it short.
        With your own connection (`sqlite3` to the file; psycopg, or SQLAlchemy on it, to the database) the calls join
        your transaction, and you commit it.
        """
        engine: Any = self._core.engine
        if "transaction" not in engine.capabilities:
            raise InvalidState("this engine has no transactions with your own writes")
        self._check_process()
        me, inside = threading.get_ident(), self._core.in_transaction
        if connection is None:
            self._check_outside()
        # With one writer, a call outside the transaction would wait for it for ever, in the same thread.
        marks = me not in inside and (connection is None or "one_writer" in engine.capabilities)
        try:
            if marks:
                inside.add(me)  # inside try: an interrupt may come right after it
            with engine.transaction(connection) as work:
                yield Transaction(self._core, self._verbs, work)
        finally:
            if marks:
                inside.discard(me)

    def check(self) -> list[Finding]:
        """Check the store, as `tampu doctor` does: (subject, ok | warn | bad, what to know or do)."""
        return self._drive(self._verbs.check())

    @property
    def durability(self) -> str:
        """``full``, or the weaker durability that was configured."""
        return self._core.engine.durability

    def _drive(self, steps: Steps[R]) -> R:
        self._check_process()
        if self._core.in_transaction:
            self._check_outside()
        return self._core.drive(steps)

    def _check_process(self) -> None:
        """Called before any lock is taken: it may have been held when the process forked."""
        if os.getpid() != self._pid:
            raise Unavailable("this store was opened before a fork", hint="open it in the child process")

    def _check_outside(self) -> None:
        if threading.get_ident() in self._core.in_transaction:
            raise InvalidState("this thread is inside a transaction", hint="call the method on tx, or after the block")

    def close(self) -> None:
        """Stop maintenance, end all waiting calls (they get nothing), and close the file or connections."""
        self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transaction:
    """Verbs that take effect when the transaction commits."""

    def __init__(self, core: Core, verbs: AllVerbs, work: Any) -> None:
        self._core = core
        self._verbs = verbs
        self._work = work

    @property
    def connection(self) -> Any:
        """The connection for your own writes. Do not commit it yourself."""
        return self._work.connection

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Your own SQL, in this transaction."""
        if not self._work.active:  # a full disk ended it: this write would be committed alone
            raise Unavailable("the transaction has ended inside the block", hint="leave the block; nothing was stored")
        return self._work.execute(sql, parameters)

    publish = blocking(AllVerbs.publish)
    publish_many = blocking(AllVerbs.publish_many)
    ack = blocking(AllVerbs.ack)
    nack = blocking(AllVerbs.nack)
    reject = blocking(AllVerbs.reject)
    release = blocking(AllVerbs.release)
    settle = blocking(AllVerbs.settle)
    extend = blocking(AllVerbs.extend)
    cancel = blocking(AllVerbs.cancel)

    def _drive(self, steps: Steps[R]) -> R:
        return self._core.drive(steps, self._do)

    def _do(self, step: Step) -> Any:
        if isinstance(step, Read):
            return step.query(self._core.engine)
        if isinstance(step, WaitForMessages):
            raise InvalidState("a transaction cannot wait", hint="wait before the block")
        if isinstance(step, PublishSet):
            return step.messages(without_errors(self._work.run(step.calls)))
        return without_errors(self._work.run([step]))[0]
