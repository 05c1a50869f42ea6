"""What the delivery log of a consumer is made of: its documents, and how to read them.

A *head* per consumer says who owns it and how far it is; *pages* hold up to a thousand deliveries each. `Deliveries`
writes them, as the owner; tasks and `settle` only read.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tampu.broker.settings import DEFAULTS, KIND, Settings, resolve
from tampu.engines.port import Document
from tampu.model.config import BUILT_IN, QueueConfig, inherit, read_config
from tampu.model.decoders import from_msgpack
from tampu.model.errors import InvalidState
from tampu.stores.port import ArrowStore

HEADS = "deliveries"
PAGES = "deliveries.page"
MOST = 10_000
"""Deliveries of one batch."""
PAGE = 1_000


class Fenced(InvalidState):
    """Another driver owns the consumer."""

    code = "consumer_fenced"


class Page(msgspec.Struct, frozen=True):
    """Where the deliveries first … last are kept."""

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
    """A name of its own, so that a checkpoint is not used with another log."""
    epoch: int = 0
    owner: str = ""
    """"" when nobody has it."""
    process: str = ""
    """Where the owner runs, for those on the same machine."""
    beat_us: int = 0
    lapse_us: int = 0
    """Without a beat for so long, the consumer is free."""
    committed: int = 0
    """Spark has committed up to here: settle it."""
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
    """Of the owner that delivers it."""


def delivered(receipt: str, epoch: int) -> str:
    """The receipt of a delivery: that of the lease, and which owner of the consumer delivered it."""
    return f"{receipt}~{epoch}"


def of_delivery(text: str) -> tuple[str, int | None]:
    """(receipt of the lease, epoch); None for a receipt that is not of a delivery."""
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
            f"deliveries {piece.low} to {piece.high} are settled and gone from the log",
            hint="another driver has taken the consumer over and carried this batch out; this one must end",
        )
    part = slice(piece.low - piece.page.first, piece.high - piece.page.first + 1)
    return Entries(found.ids[part], found.receipts[part], found.attempts[part])


def settings_of(store: ArrowStore, tenant: str, queue: str) -> Settings:
    """The queue's settings as they hold now."""

    def own(document: Document | None) -> QueueConfig | None:
        return None if document is None else read_config(document.value)

    of_queue, of_tenant = (own(store.document(KIND, tenant, name)) for name in (queue, DEFAULTS))
    return resolve(inherit(of_queue, of_tenant, BUILT_IN))


def in_flight(store: ArrowStore, tenant: str, head: Head) -> Iterator[tuple[Page, Entries]]:
    """The pages that wait for Spark's commit."""
    for page in head.pages:
        found = read_page(store, tenant, page) if page.last > head.committed else None
        if found is not None:
            yield page, found
