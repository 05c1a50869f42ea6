"""The engine port: what a store must be able to do to carry tampu.

Writing is one method, `Engine.run`: it takes the calls that came together and carries them out in one commit where
the store can do that (a cluster may need several). Only a call is a unit: it is all or nothing by itself, or answers
per item where its reply says so, and never spoils its neighbours: its slot in the answer holds the reply, or the
`TampuError` that refused it. Calls of one `run` come from different callers and may be carried out in any order.

Times are microseconds since 1970 by the engine's own clock, durations are microseconds; limits and delays come
resolved in the call, so an engine knows no policy. How each verb looks on SQLite, PostgreSQL and Redis:
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


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message to publish, checked and packed."""

    body: Body
    packed: bytes
    max_attempts: int
    ordering: str = "fifo"
    ageing_us: int = 0
    run_us: int | None = None
    delay_us: int | None = None
    ttl_us: int | None = None
    group: str | None = None
    """The group, when the queue limits how many messages of one go at a time."""
    digest: bytes | None = None
    """Of everything that makes the body, for the idempotency key."""
    window_us: int = 0
    id: str | None = None
    expire_us: int | None = None
    """It expires at this time at the latest."""

    def expires(self, now: int) -> int | None:
        """When it expires, published now."""
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
    """Most messages of the queue that have not ended; 0 is no limit."""
    simple: bool = False
    """Every item is ready at once at rank 0, with nothing to look up or to expire: the common batch."""
    remember_us: int = 0
    """As in `Load`, for items whose ids are a stem and a number."""
    slots: int | None = None
    """How many messages of a group may go at once (`tampu.engines.groups`); None: as many as the queue has it."""
    group_rate: GroupRate | None = None
    """How often one of a group may go, where ``places`` are given."""
    once: str | None = None
    """A name of the batch within its queue, drawn by who publishes it. Under one name it is stored once within
    ``once_us``: again, the reply is its messages as duplicates, or `IdempotencyConflict` when it is another one. Only
    for engines with the capability ``once``; for others `tampu.engines.load.named` says the same."""
    once_us: int = 0


class Load(msgspec.Struct, frozen=True):
    """Store many plain messages under ids of their own, in their order and ready at once; all or none.

    Plain is: rank 0, no key, no idempotency key, no expiry, no group's turn to wait for; others go by `Publish`. The id
    of a message is ``stem`` and its number, 5 bytes, so loading again stores only what is not there yet. Refuses with
    `QueueFull`. Reply: int, how many were stored.
    """

    tenant: str
    queue: str
    id_prefix: bytes
    """11 bytes: the beginning of a UUIDv8."""
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
    """For so long all numbers up to the last of these count as stored in this queue, also when their messages are gone;
    who asks for it stores the numbers of a stem in their order. Only engines without the capability ``transaction``
    look at it: with the others a caller notes in the same commit how far it has come."""
    once: bool = False
    """The note in the same commit is all that keeps it from being stored again: ids may be made as those of any other
    message, which need no index."""


class QueueClaim(msgspec.Struct, frozen=True):
    """A queue to claim from, with its limits (0: none)."""

    queue: str
    lease_us: int
    max_in_flight: int = 0
    rate: float = 0.0
    burst: int = 0
    has_group_rate: bool = False
    """Groups have a pace: a message that is claimed costs a token of its group."""


class Claim(msgspec.Struct, frozen=True):
    """Lease up to ``limit`` messages from the queues, in the order wanted, never one that is due to expire.

    What is due by now (delays, expired leases) is ready for this claim too. Reply: list[Lease]; or `RetryLater` if
    there is nothing and the rate of a queue is used up; or `AGAIN` if many messages had to expire first, which is
    better done in several commits.
    """

    tenant: str
    wants: Sequence[QueueClaim]
    limit: int
    worker: str | None = None


class Again(msgspec.Struct, frozen=True):
    """Not done yet, by no fault of the caller: the same call again goes on."""


AGAIN = Again()


class RetryLater(msgspec.Struct, frozen=True):
    """Nothing now: the rate of a queue allows its next claim in so many microseconds."""

    us: int


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
    """Wait after attempt 1, 2, …, times ``spread``; used when ``delay_us`` is None."""
    spread: float = 1.0
    id: str | None = None
    """The message's id, where the caller knows it: saves the engine looking it up for the outcome."""
    max_attempts: int | None = None
    """Of a nack: the message's max_attempts from now on, this nack included. None: as it is."""


class Settle(msgspec.Struct, frozen=True):
    """End leases; one outcome per item, `LeaseLost` for a receipt that is not current. Reply: list[Outcome]."""

    tenant: str
    items: Sequence[SettleItem]
    notify_queues: frozenset[str] = frozenset()
    """Queues that limit how much is leased: whoever waits there is told when leases have ended, as if so many messages
    had become ready."""
    strict: bool = False
    """Only a current receipt counts. One that was settled before, in the same way, is `LeaseLost` too."""

    def freed(self, outcomes: Sequence[Outcome]) -> dict[str, int]:
        """How many leases of these queues have ended."""
        freed: dict[str, int] = {}
        if self.notify_queues:
            for item, outcome in zip(self.items, outcomes, strict=True):
                if item.queue in self.notify_queues and outcome.ok:
                    freed[item.queue] = freed.get(item.queue, 0) + 1
        return freed


class Extend(msgspec.Struct, frozen=True):
    """Let leases run for ``lease_us`` from now. Reply: list[Extended | TampuError]."""

    tenant: str
    items: Sequence[tuple[str, str, int]]
    """(queue, receipt, lease_us)"""


class Extended(msgspec.Struct, frozen=True):
    until_us: int
    cancel_requested: bool


class Cancel(msgspec.Struct, frozen=True):
    """Cancel what waits, ask the worker of what is leased. Reply: list[Outcome]."""

    tenant: str
    ids: Sequence[str]


class Free(msgspec.Struct, frozen=True):
    """Let held messages go on. Reply: list[Outcome]."""

    tenant: str
    ids: Sequence[str]


class Replay(msgspec.Struct, frozen=True):
    """Dead messages become ready again, attempts 0, same id. Reply: list[Outcome]."""

    tenant: str
    ids: Sequence[str]
    max_attempts: Sequence[int]
    """What each has from now on."""


class Purge(msgspec.Struct, frozen=True):
    """Remove up to ``limit`` messages of one state (not leased ones). Reply: int, how many."""

    tenant: str
    queue: str
    state: State
    limit: int


class Rerank(msgspec.Struct, frozen=True):
    """Give up to ``limit`` messages after ``after`` the rank of another ordering. Reply: int | None, where to go on."""

    tenant: str
    queue: str
    ordering: str
    ageing_us: int
    after: int
    limit: int


class Regroup(msgspec.Struct, frozen=True):
    """Let ``places`` messages of each group go at once from now on, at that pace; let go who may, group after group.

    Who waits for a token waits for it at the new pace, except where groups keep order: there it has its time.
    Up to ``limit`` groups after ``after``. Reply: str | None, where to go on.
    """

    tenant: str
    queue: str
    slots: int | None
    after: str
    limit: int
    group_rate: GroupRate | None = None


class Sweep(msgspec.Struct, frozen=True):
    """Promote what is due, reap leases that ran out, expire; up to ``limit`` of each. Reply: `Swept`."""

    limit: int


class Swept(msgspec.Struct, frozen=True):
    moved: int
    next_us: int | None
    """When the next thing is due; None when nothing is pending."""


class Trim(msgspec.Struct, frozen=True):
    """Remove up to ``limit`` ended messages, results, spent keys and journal records past their time. Reply: int."""

    retention_us: Mapping[tuple[str, str], int]
    """By (tenant, queue); queues not named use ``default_us``."""
    default_us: int
    journal_us: int
    limit: int
    read: Position | None = None
    """What every registered reader of the journal has. Records past it, and messages that ended past it, stay,
    however old they are; a partition not named has been read up to nowhere. None: nobody reads for good."""


class PutDocument(msgspec.Struct, frozen=True):
    """Write a document; with ``version`` only if that is still its version (0: it must be new).

    Reply: int, the new version.
    """

    kind: str
    tenant: str
    name: str
    value: bytes
    version: int | None = None


class DeleteDocument(msgspec.Struct, frozen=True):
    """Reply: bool, whether it was there."""

    kind: str
    tenant: str
    name: str


class Together(msgspec.Struct, frozen=True):
    """Carry out several calls as a unit: all of them, or none.

    ``tenant`` is that of the unit's name. Callers keep to one tenant, except followers, whose page is of several.

    A call that would be refused alone refuses the unit, with its error; so does an outcome with an error. Documents are
    written first, then leases settled, messages published, cancelled and freed, whatever the order of ``calls``.
    Settlements are ``strict``, and publishes are not ``bare``. Reply: list, the replies of the calls.

    Engines with the capability ``atomic:isolated`` do all of it in one commit: nobody sees a part. With
    ``atomic:eventual`` the parts may become visible one after the other; all are there within seconds, whatever dies.
    """

    tenant: str
    calls: Sequence[Publish | Settle | Cancel | Free | PutDocument | DeleteDocument]
    name: str | None = None
    """Drawn by the caller. Under one name a unit takes effect once within ``name_us``: the same again gets the same
    reply, another one `IdempotencyConflict`."""
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
    | Purge
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
    """Counts by state, kept with each commit, and the age of what has waited longest."""

    tenant: str
    queue: str
    counts: dict[State, int]
    oldest_ready_us: int | None
    """When the oldest ready message was published."""
    now_us: int


class PollStatus(msgspec.Struct, frozen=True):
    """All that keepers look at when nothing happens, so that one round trip tells it."""

    now_us: int
    due_us: int | None
    """As `Engine.next_due`."""
    revision: int
    free: bool
    """Nobody else has the keepers' seat: `Engine.lead` is worth asking."""
    ready: dict[tuple[str, str], int]
    """How many messages are ready in the queues asked about."""


class Page(msgspec.Struct, frozen=True):
    messages: list[Message]
    cursor: tuple[Any, ...] | None
    """Where the next page starts; None at the end."""


class Listener(Protocol):
    """Who wants to hear what commits brought about. Called after the commit, from the thread that ran it."""

    def ready(self, queues: Mapping[tuple[str, str], int]) -> None:
        """So many messages became ready in these queues."""
        ...

    def due(self, at_us: int) -> None:
        """Something is due at this time."""
        ...

    def leases_expired(self, queues: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Leases ran out in these queues: so many messages are ready again, so many are dead."""
        ...

    def on_remote_change(self) -> bool:
        """Something changed, perhaps in another process. Answers whether somebody here waits for messages: then the
        next change is told at once, else within 25 ms."""
        ...


class Engine(Protocol):
    """A store for messages. `run` is called by one thread at a time; reads may come from any."""

    capabilities: frozenset[str]
    """``transaction``, ``group_order``, ``load``, ``once``; ``hand_over``: a claim in the same run as a publish gets
    its messages, for less than in a run of its own, and every change is told at once; ``one_writer``: who has a
    transaction open keeps all others from writing, and itself outside of it; ``atomic:isolated`` or
    ``atomic:eventual``: how a `Together` becomes visible."""
    durability: str
    schema: int
    """The version of its tables, or of how its keys are laid out; a store of another one is never opened."""

    def run(self, calls: Sequence[Call]) -> list[Any | TampuError]: ...

    def get(self, tenant: str, id: str) -> Message | None:
        """One message whole, with failures and result."""
        ...

    def page(self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int) -> Page | None:
        """A page of one state in the order of its index; None for a queue that does not exist."""
        ...

    def stats(self, tenant: str, queue: str | None) -> list[QueueStats]: ...

    def queues(self) -> list[tuple[str, str]]:
        """(tenant, name) of every queue."""
        ...

    def journal(self, after: Position | None, limit: int, tenant: str | None) -> JournalPage: ...

    def document(self, kind: str, tenant: str, name: str) -> Document | None: ...

    def documents(self, kind: str, tenant: str) -> list[Document]: ...

    def all_documents(self) -> list[Document]:
        """Every document, of all kinds and tenants."""
        ...

    def kept(
        self, tenant: str, queue: str, state: State, after: tuple[Any, ...] | None, limit: int
    ) -> SnapshotPage | None:
        """As `page`, of whole messages: all that another store needs to go on with them."""
        ...

    def requests(self, tenant: str, after: tuple[Any, ...] | None, limit: int) -> RequestPage:
        """The idempotency keys of a tenant whose window is open; a page may hold one again."""
        ...

    def revision(self) -> int:
        """A number that changes with every change of a document; cheap to ask."""
        ...

    def next_due(self) -> int | None:
        """When the next delay, lease or expiry falls due; cheap to ask."""
        ...

    def now(self) -> int: ...

    def poll_status(self, queues: Sequence[tuple[str, str]]) -> PollStatus:
        """The time, `next_due`, `revision`, the keepers' seat, and what is ready in these queues (tenant, name)."""
        ...

    def listen(self, listener: Listener) -> None:
        """Tell ``listener`` from now on; a wake-up from another process may be lost, so it also looks by itself."""
        ...

    def lead(self) -> bool:
        """Try to be the one process whose keepers work; true while it is. Ends with the process."""
        ...

    def check(self) -> list[tuple[str, str, str]]:
        """What `tampu doctor` shows: (what, ``ok`` | ``warn`` | ``bad``, what to know or do)."""
        ...

    def close(self) -> None: ...


def atomicity(engine: Engine) -> str:
    """``isolated`` or ``eventual``: how a `Together` becomes visible."""
    return "isolated" if "atomic:isolated" in engine.capabilities else "eventual"
