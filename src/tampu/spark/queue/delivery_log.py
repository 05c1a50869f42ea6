"""The documents of a consumer's delivery log, and how to read them.

A *head* per consumer records its owner and its progress; *pages* have up to a thousand deliveries each. `Deliveries`
writes them as the owner; tasks and `settle` only read.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tampu.broker import settings
from tampu.broker.settings import Settings
from tampu.model.decoders import from_msgpack
from tampu.model.errors import InvalidState
from tampu.stores.port import ArrowStore

HEADS = "deliveries"
PAGES = "deliveries.page"
MOST = 10_000
"""Maximum number of deliveries in a batch."""
PAGE = 1_000


class Fenced(InvalidState):
    """Another driver owns the consumer."""

    code = "consumer_fenced"


class Page(msgspec.Struct, frozen=True):
    """The name of the document with the deliveries first … last."""

    name: str
    first: int
    last: int


class Entries(msgspec.Struct, frozen=True, array_like=True):
    """The deliveries of a page, in order."""

    ids: list[str]
    receipts: list[str]
    attempts: list[int]


class Head(msgspec.Struct, frozen=True):
    log: str
    """A unique name, so that a checkpoint is not used with another log."""
    epoch: int = 0
    owner: str = ""
    """"" if there is none."""
    process: str = ""
    """The owner's process, for drivers on the same machine."""
    beat_us: int = 0
    lapse_us: int = 0
    """Without a heartbeat for this time, the consumer is free."""
    committed: int = 0
    """Spark has committed up to here: settle these deliveries."""
    settled: int = 0
    last: int = 0
    pages: tuple[Page, ...] = ()


_read_head = from_msgpack(Head).decode
_read_entries = from_msgpack(Entries).decode


class Piece(msgspec.Struct, frozen=True):
    """A part of a batch for one task: deliveries low … high of a page."""

    page: Page
    low: int
    high: int
    epoch: int
    """Epoch of the owner that delivers it."""


def delivered(receipt: str, epoch: int) -> str:
    """The receipt of a delivery: that of the lease, and the epoch of the owner that delivered it."""
    return f"{receipt}~{epoch}"


def of_delivery(text: str) -> tuple[str, int | None]:
    """(receipt of the lease, epoch); epoch None if the receipt is not that of a delivery."""
    receipt, _, epoch = text.rpartition("~")
    return (receipt, int(epoch)) if receipt and epoch.isdigit() else (text, None)


def head_name(queue: str, consumer: str) -> str:
    return f"{queue}/{consumer}"


def read_head(store: ArrowStore, tenant: str, queue: str, consumer: str) -> tuple[Head | None, int]:
    """(the head, its version)"""
    found = store.document(HEADS, tenant, head_name(queue, consumer))
    return (None, 0) if found is None else (_read_head(found.value), found.version)


def read_page(store: ArrowStore, tenant: str, page: Page) -> Entries | None:
    found = store.document(PAGES, tenant, page.name)
    return None if found is None else _read_entries(found.value)


def entries(store: ArrowStore, tenant: str, piece: Piece) -> Entries:
    """The deliveries of a piece."""
    found = read_page(store, tenant, piece.page)
    if found is None:
        raise Fenced(
            f"deliveries {piece.low} to {piece.high} are settled and no longer in the log",
            hint="another driver has taken the consumer over and run this batch; stop this driver",
        )
    part = slice(piece.low - piece.page.first, piece.high - piece.page.first + 1)
    return Entries(found.ids[part], found.receipts[part], found.attempts[part])


def settings_of(store: ArrowStore, tenant: str, queue: str) -> Settings:
    """The current settings of the queue."""
    return settings.read(store.document, tenant, queue)


def in_flight(store: ArrowStore, tenant: str, head: Head) -> Iterator[tuple[Page, Entries]]:
    """The pages that Spark has not committed yet."""
    for page in head.pages:
        found = read_page(store, tenant, page) if page.last > head.committed else None
        if found is not None:
            yield page, found
