"""The engine port: the interface that every engine implements.

All writes go through one method, `Engine.run`. It takes the calls that arrived together and runs them in one commit
where the store can (a cluster may need several). Each call is all or nothing by itself, or has a result per item where
its reply says so. A call never affects the others: its reply, or the `TampuError` that refused it, is at its index in
the list of replies. Calls of one `run` come from different callers and may run in any order.

Times are microseconds since 1970 by the engine's own clock; durations are microseconds. Limits and delays are values in
the call, so an engine knows no policy. How each verb works on SQLite, PostgreSQL and Redis:
docs/decisions/0001-engine-port.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tampu.engines.groups import GroupRate
from tampu.engines.transfer import Import, RequestPage, SnapshotPage, StartJournal
from tampu.model.errors import TampuError
from tampu.model.journal import JournalPage, Position
from tampu.model.message import Body, Message, State
from tampu.model.outcome import Outcome

Buffer = bytes | memoryview


class Ending(msgspec.Struct, frozen=True):
    """How a message ends that nobody works on."""

    state: State
    """``dead``, ``cancelled`` or ``done``"""
    reason: str
    error: str | None = None
    """Its last error, if it is dead."""


ENDING_VERB = {State.DEAD: "reject", State.CANCELLED: "cancel", State.DONE: "ack"}
"""What the journal says of an `Ending`."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message to publish, validated and packed."""

    body: Body
    packed: bytes
    max_attempts: int
    ordering: str = "fifo"
    ageing_us: int = 0
    run_us: int | None = None
    delay_us: int | None = None
    ttl_us: int | None = None
    group: str | None = None
    """The group, if the queue limits how many messages of a group are delivered at once."""
    digest: bytes | None = None
    """Digest of the whole body, to compare messages with the same idempotency key."""
    window_us: int = 0
    id: str | None = None
    expire_us: int | None = None
    """The latest time at which it expires."""
    ends: Ending | None = None
    """Store it as held, and end it in the same commit. It does not count for ``max_depth``, takes no slot of its group,
    and neither has its key nor replaces the payload of the message that has it. If the message is known by its id or
    idempotency key, nothing ends."""

    @property
    def hold(self) -> str | None:
        """Why it is held: it was published so, or it ends at once."""
        return self.body.hold or (None if self.ends is None else self.ends.reason or self.ends.state)

    def expires(self, now: int) -> int | None:
        """When it expires if published now."""
        if not self.ttl_us:
            return self.expire_us
        return now + self.ttl_us if self.expire_us is None else min(now + self.ttl_us, self.expire_us)


class Publish(msgspec.Struct, frozen=True):
    """Store the items in a queue, all or none. Refuses with `QueueFull`, `IdempotencyConflict`.

    Reply: list[Message].
    """

    tenant: str
    queue: str
    items: Sequence[Item]
    max_depth: int = 0
    """Maximum number of live messages in the queue; 0: no limit."""
    simple: bool = False
    """Every item is ready now, at rank 0, with no look-up and no expiry: the common batch."""
    remember_us: int = 0
    """As in `Load`, for items whose ids are a prefix and a number."""
    slots: int | None = None
    """How many messages of a group may be delivered at once (`tampu.engines.groups`); None: as the queue has it now."""
    group_rate: GroupRate | None = None
    """Deliveries per second of a group. Used only with ``slots``."""
    batch_id: str | None = None
    """Chosen by the publisher, unique in the queue. The same batch again within ``batch_id_us`` is not stored: the
    reply is its messages as duplicates. Another batch under this id is refused with `IdempotencyConflict`. Only for
    engines with the capability ``batch_id``; for others `tampu.engines.load.named` derives message ids from it."""
    batch_id_us: int = 0
    copy: bool = False
    """A simple batch whose reply nobody reads: it is an empty list. All items have one ``max_attempts``. Such calls
    of a unit that have one list of items, the same object, store it in several queues: its bodies are sent once."""


class Load(msgspec.Struct, frozen=True):
    """Store many plain messages under given ids, ready now and in their order; all or none.

    Plain means: rank 0, no key, no idempotency key, no expiry, no group to wait for. Use `Publish` for others. The id
    of a message is ``id_prefix`` and its number in 5 bytes, so loading again stores only what is missing. Refuses with
    `QueueFull`, and with `IdempotencyConflict` if another queue has an id. Reply: int, how many were stored.
    """

    tenant: str
    queue: str
    id_prefix: bytes
    """11 bytes: the start of a UUIDv8."""
    numbers: Sequence[int]
    """Growing, below 2^40; at least one."""
    bodies: Buffer
    """The packed bodies, one after the other."""
    starts: Sequence[int]
    """Where each body begins, and where the last one ends."""
    types: Sequence[str]
    max_attempts: int
    max_depth: int = 0
    remember_us: int = 0
    """For this long, all numbers up to the last of these count as stored in this queue, even if their messages are
    gone. The caller must then store the numbers of a prefix in order. Only for engines without the capability
    ``transaction``: with it, the caller writes its progress in the same commit."""
    position_in_same_commit: bool = False
    """The caller writes its own position in the same commit, and only that keeps these messages from being stored
    again. The engine may then give them ids that need no index, as those of other messages."""


class QueueClaim(msgspec.Struct, frozen=True):
    """A queue to claim from, with its limits (0: none)."""

    queue: str
    lease_us: int
    max_in_flight: int = 0
    rate: float = 0.0
    burst: int = 0
    has_group_rate: bool = False
    """Groups have a rate: each claimed message spends a token of its group."""


class Claim(msgspec.Struct, frozen=True):
    """Lease up to ``limit`` messages from the queues, in the order of ``wants``, never one past its expiry.

    Messages that are due now (delays, expired leases) count as ready. Reply: list[Lease]; or `RetryLater` if there is
    nothing and the rate of a queue is used up; or `AGAIN` if many messages had to be moved first, which is better done
    in several commits.
    """

    tenant: str
    wants: Sequence[QueueClaim]
    limit: int
    worker: str | None = None


class Again(msgspec.Struct, frozen=True):
    """Not done yet. The caller repeats the same call to continue."""


AGAIN = Again()


class RetryLater(msgspec.Struct, frozen=True):
    """Nothing now: the rate of a queue is used up."""

    us: int
    """When the next claim is allowed, in microseconds from now."""


class SettleItem(msgspec.Struct, frozen=True, gc=False):
    """One lease to settle."""

    verb: str
    """``ack``, ``nack``, ``reject`` or ``release``"""
    queue: str
    receipt: str
    result: bytes | None = None
    result_ttl_us: int = 0
    reason: str | None = None
    error: str | None = None
    traceback: str | None = None
    delay_us: int | None = None
    delays: tuple[int, ...] = ()
    """Delay after attempt 1, 2, …, multiplied by ``spread``; used when ``delay_us`` is None."""
    spread: float = 1.0
    id: str | None = None
    """The id of the message, if the caller knows it: saves the engine a look-up for the outcome."""
    max_attempts: int | None = None
    """For a nack: the new max_attempts of the message, this nack included. None: no change."""
    hold: str | None = None
    """For a release: the message is held for this reason, until `Free`. ``delay_us`` is then not used."""


class Settle(msgspec.Struct, frozen=True):
    """End leases. One outcome per item, `LeaseLost` for a receipt that is not current. Reply: list[Outcome]."""

    tenant: str
    items: Sequence[SettleItem]
    notify_queues: frozenset[str] = frozenset()
    """Queues with a max_in_flight. Ended leases wake waiters there, as if as many messages had become ready."""
    strict: bool = False
    """Only a current receipt counts. A repeated settlement is `LeaseLost` too."""

    def freed(self, outcomes: Sequence[Outcome]) -> dict[str, int]:
        """How many leases ended, by queue, for the queues in ``notify_queues``."""
        freed: dict[str, int] = {}
        if self.notify_queues:
            for item, outcome in zip(self.items, outcomes, strict=True):
                if item.queue in self.notify_queues and outcome.ok:
                    freed[item.queue] = freed.get(item.queue, 0) + 1
        return freed


class Extend(msgspec.Struct, frozen=True):
    """Set leases to end ``lease_us`` from now. Reply: list[Extended | TampuError]."""

    tenant: str
    items: Sequence[tuple[str, str, int]]
    """(queue, receipt, lease_us)"""
    ids: Sequence[str] = ()
    """If given, the message that each lease must be of. `LeaseLost` if it is another's."""


class Extended(msgspec.Struct, frozen=True):
    until_us: int
    cancel_requested: bool


class Cancel(msgspec.Struct, frozen=True):
    """Cancel waiting messages, and request cancellation of leased ones. Reply: list[Outcome].

    With ``dead``, waiting messages become dead for this reason instead. Leased ones are then refused with
    `InvalidState`, and so are ended ones, unless they are dead for the same reason.
    """

    tenant: str
    ids: Sequence[str]
    dead: str | None = None
    error: str | None = None
    """The last error of messages that become dead."""
    reason: str | None = None
    """The journal's detail, without ``dead``."""
    actor: str | None = None
    """Who asked for it: the ``worker`` of the journal's transitions."""
    held_for: str | None = None
    """As in `Free`."""

    @property
    def ending(self) -> Ending:
        """How waiting messages end."""
        if self.dead is None:
            return Ending(State.CANCELLED, self.reason or "")
        return Ending(State.DEAD, self.dead, self.error)


class Free(msgspec.Struct, frozen=True):
    """Release messages that were published or released with ``hold``. Reply: list[Outcome]."""

    tenant: str
    ids: Sequence[str]
    bodies: Sequence[bytes | None] = ()
    """If given, the new body of each message, packed; None keeps the old one. It replaces the payload as a publish with
    the message's key does (`tampu.engines.rules.KEPT_BY_KEY`), and is journaled as ``replace`` before the ``free``."""
    actor: str | None = None
    """Who asked for it: the ``worker`` of the journal's transitions."""
    held_for: str | None = None
    """Refuse messages that are held for another reason. Only for engines with the capability ``atomic:eventual``; on
    others, a unit with a document's version shows that nothing has changed."""


class Replay(msgspec.Struct, frozen=True):
    """Make dead messages ready again, with the same id and attempts 0. Reply: list[Outcome]."""

    tenant: str
    ids: Sequence[str]
    max_attempts: Sequence[int]
    """The new max_attempts of each."""
    actor: str | None = None
    """Who asked for it: the ``worker`` of the journal's transitions."""


class UndoReplay(msgspec.Struct, frozen=True):
    """Make replayed messages dead again that wait and were not delivered since. Reply: list[Outcome].

    Their errors are still those from before the replay. Others are refused with `InvalidState`. Journaled as
    ``reject``.
    """

    tenant: str
    ids: Sequence[str]
    reasons: Sequence[str]
    attempts: Sequence[int]
    """The reason and the attempts of each, as they were before the replay."""
    actor: str | None = None
    """Who asked for it: the ``worker`` of the journal's transitions."""


class Purge(msgspec.Struct, frozen=True):
    """Remove up to ``limit`` messages of one state, except leased; the oldest of its index first.

    Reply: int, how many.
    """

    tenant: str
    queue: str
    state: State
    limit: int
    actor: str | None = None
    """Who asked for it: the ``worker`` of the journal's transitions."""
    until_us: int | None = None
    """Only dead messages: those that died at this time or before."""
    ids: Sequence[str] | None = None
    """Only dead messages: these, as far as they are dead and in this queue. At most ``limit``."""


class Remove(msgspec.Struct, frozen=True):
    """Remove messages for good, with history and result, in any state except leased. Reply: list[Outcome].

    The outcome has the state that the message was in; a leased one is refused with `InvalidState`. An id is given once.
    """

    tenant: str
    ids: Sequence[str]
    actor: str | None = None
    """Who asked for it: the ``worker`` of the journal's transitions."""


class Rerank(msgspec.Struct, frozen=True):
    """Give up to ``limit`` messages after ``after`` the rank of another ordering.

    Reply: int | None, the ``after`` of the next call.
    """

    tenant: str
    queue: str
    ordering: str
    ageing_us: int
    after: int
    limit: int


class Regroup(msgspec.Struct, frozen=True):
    """Change the slots and the rate of groups, and admit the messages that may go now, group by group.

    Messages that wait for a token get a new time by the new rate, except in groups that keep order. Up to ``limit``
    groups after ``after``. Reply: str | None, the ``after`` of the next call.
    """

    tenant: str
    queue: str
    slots: int | None
    after: str
    limit: int
    group_rate: GroupRate | None = None


class Sweep(msgspec.Struct, frozen=True):
    """Promote delayed messages, reap expired leases, expire messages; up to ``limit`` of each. Reply: `Swept`."""

    limit: int


class Swept(msgspec.Struct, frozen=True):
    moved: int
    next_us: int | None
    """When the next message is due; None if none is pending."""


class Trim(msgspec.Struct, frozen=True):
    """Remove up to ``limit`` ended messages, results, idempotency keys and journal records past their retention.

    Reply: int, how many.
    """

    retention_us: Mapping[tuple[str, str], int]
    """By (tenant, queue). Other queues use ``default_us``."""
    default_us: int
    journal_us: int
    limit: int
    read: Position | None = None
    """The position that all registered journal readers have passed. Later records, and messages that ended later, stay,
    however old they are. A partition that is missing has not been read at all. None: there is no registered reader."""
    keep_results: bool = False
    """Remove no results but those of messages that are removed: a legal hold may be for them."""


class PutDocument(msgspec.Struct, frozen=True):
    """Write a document. With ``version``, only if that is still its version (0: it must be new).

    Reply: int, the new version.
    """

    kind: str
    tenant: str
    name: str
    value: bytes
    version: int | None = None


class DeleteDocument(msgspec.Struct, frozen=True):
    """Remove a document. With ``version``, only if that is still its version. Reply: bool, whether it existed."""

    kind: str
    tenant: str
    name: str
    version: int | None = None


class Together(msgspec.Struct, frozen=True):
    """Run several calls as a unit: all of them, or none.

    ``tenant`` is that of the unit's name. Callers use one tenant, except followers, whose page may be of several.

    If one call is refused, or has an outcome with an error, the unit is refused with that error. Documents are written
    first, then leases are settled and extended, and messages published, cancelled and freed, whatever the order of
    ``calls``. Settlements are ``strict``; publishes are not ``simple`` if the unit has a name. Reply: list, the replies
    of the calls.

    Engines with the capability ``atomic:isolated`` use one commit: nobody sees a part. With ``atomic:eventual`` the
    parts may become visible one after the other. All are visible within seconds, whatever process dies.
    """

    tenant: str
    calls: Sequence[Publish | Settle | Extend | Cancel | Free | PutDocument | DeleteDocument]
    name: str | None = None
    """Chosen by the caller. A unit takes effect once under its name within ``name_us``: the same unit again gets the
    same reply, another one gets `IdempotencyConflict`."""
    name_us: int = 0


Call = (
    Publish
    | Load
    | Import
    | StartJournal
    | Claim
    | Settle
    | Extend
    | Cancel
    | Free
    | Replay
    | UndoReplay
    | Purge
    | Remove
    | Rerank
    | Regroup
    | Sweep
    | Trim
    | PutDocument
    | DeleteDocument
    | Together
)


class Document(msgspec.Struct, frozen=True):
    kind: str
    tenant: str
    name: str
    version: int
    value: bytes


class QueueStats(msgspec.Struct, frozen=True):
    """Counts by state, and the age of the oldest ready message."""

    tenant: str
    queue: str
    counts: dict[State, int]
    oldest_ready_us: int | None
    """When the oldest ready message was published."""
    now_us: int


class PollStatus(msgspec.Struct, frozen=True):
    """What maintenance reads while idle, in one round trip."""

    now_us: int
    due_us: int | None
    """As `Engine.next_due`."""
    revision: int
    free: bool
    """No other process is the leader: `Engine.lead` is worth a call."""
    ready: dict[tuple[str, str], int]
    """How many messages are ready, for the queues in the request."""
    journal_end: Position | None = None
    """Where the journal ends, or a place behind that if some records have no offsets yet. None: not known."""


class Page(msgspec.Struct, frozen=True):
    messages: list[Message]
    cursor: tuple[Any, ...] | None
    """Where the next page starts; None at the end."""


class Listener(Protocol):
    """Notified after a commit, in the thread that ran it."""

    def ready(self, queues: Mapping[tuple[str, str], int]) -> None:
        """How many messages became ready, by (tenant, queue)."""
        ...

    def due(self, at_us: int) -> None:
        """Something is due at this time."""
        ...

    def leases_expired(self, queues: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Leases expired: how many messages are ready again and how many are dead, by (tenant, queue)."""
        ...

    def on_remote_change(self) -> bool:
        """Something changed, perhaps in another process. Returns True if a caller here waits for messages: then the
        next change is reported immediately, else within 25 ms."""
        ...


class Engine(Protocol):
    """A store for messages. `run` is called by one thread at a time; reads may come from any thread."""

    capabilities: frozenset[str]
    """``transaction``, ``group_order``, ``load``, ``batch_id``; ``hand_over``: a claim gets the messages of a publish
    in the same run, cheaper than in a run of its own, and every change is reported immediately; ``one_writer``: an
    open transaction blocks all other writes, also those of its own process outside of it; ``atomic:isolated`` or
    ``atomic:eventual``: how a `Together` becomes visible."""
    durability: str
    schema: int
    """The version of the tables or the key layout. A store with another version is never opened."""

    def run(self, calls: Sequence[Call]) -> list[Any | TampuError]: ...

    def get(self, tenant: str, id: str, *, expired: bool = False) -> Message | None:
        """One message with its failures and result; with ``expired``, also a result that is past its time."""
        ...

    def page(self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int) -> Page | None:
        """A page of messages of one state, in the order of its index; None if the queue does not exist."""
        ...

    def correlated(self, tenant: str, correlation_id: str, limit: int) -> list[Message]:
        """The first ``limit`` messages with this correlation id, oldest first. Its cost does not depend on others."""
        ...

    def stats(self, tenant: str, queue: str | None) -> list[QueueStats]: ...

    def queues(self) -> list[tuple[str, str]]:
        """(tenant, name) of every queue."""
        ...

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage: ...

    def document(self, kind: str, tenant: str, name: str) -> Document | None: ...

    def documents(
        self, kind: str, tenant: str, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[Document]:
        """Those whose names begin with ``prefix``, by name; at most ``limit`` after the name ``after``."""
        ...

    def count_documents(self, kind: str, tenant: str) -> int: ...

    def all_documents(self) -> list[Document]:
        """Every document, of all kinds and tenants."""
        ...

    def export_messages(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        """As `page`, with everything another store needs to import the messages."""
        ...

    def export_idempotency_keys(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        """The idempotency keys of a tenant's queues within their window. A key may appear on two pages."""
        ...

    def revision(self) -> int:
        """A number that changes with every change of a document. Cheap."""
        ...

    def is_full(self) -> bool:
        """True if the disk is full: leases are settled and messages removed, but nothing new is stored. Cheap."""
        ...

    def next_due(self) -> int | None:
        """When the next delay, lease or expiry is due. Cheap."""
        ...

    def now(self) -> int: ...

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> PollStatus:
        """The time, `next_due`, `revision`, whether there is a leader, and ready counts of these (tenant, name)."""
        ...

    def listen(self, listener: Listener) -> None:
        """Notify ``listener`` from now on. A wake-up from another process may be lost, so callers also poll."""
        ...

    def wake_others(self) -> None:
        """Wake other processes although nothing became ready: they call `Listener.on_remote_change`. It may be lost.
        Where processes poll for changes, it does nothing."""
        ...

    def lead(self) -> bool:
        """Try to become the leader, the process whose maintenance works. True while it is. Ends with the process."""
        ...

    def check(self) -> list[tuple[str, str, str]]:
        """The findings of `tampu doctor`: (subject, ``ok`` | ``warn`` | ``bad``, explanation or advice)."""
        ...

    def close(self) -> None: ...


def atomicity(engine: Engine) -> str:
    """``isolated`` or ``eventual``: how a `Together` becomes visible."""
    return "isolated" if "atomic:isolated" in engine.capabilities else "eventual"
