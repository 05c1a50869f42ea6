"""tampu: a durable work queue. See README.md for a start; the names below are the public ones."""

from tampu.broker.aio import AsyncQueue
from tampu.broker.queue import Queue
from tampu.broker.steering import MessagePage, Replayed, Stats
from tampu.broker.where import Where
from tampu.model.config import Backoff, QueueConfig, exponential, fixed, linear
from tampu.model.errors import (
    DamagedFile,
    Forbidden,
    ForeignFile,
    IdempotencyConflict,
    InvalidConfig,
    InvalidMessage,
    InvalidState,
    LeaseLost,
    NotFound,
    PayloadTooLarge,
    QueueClosed,
    QueueFull,
    RateLimited,
    SchemaMismatch,
    StorageError,
    StorageFull,
    TampuError,
    Unavailable,
    VersionConflict,
)
from tampu.model.journal import JournalPage, Transition
from tampu.model.message import Failure, Lease, Message, NewMessage, State
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release
from tampu.opening import open, open_async

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "AsyncQueue",
    "Backoff",
    "DamagedFile",
    "Failure",
    "Forbidden",
    "ForeignFile",
    "IdempotencyConflict",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidState",
    "JournalPage",
    "Lease",
    "LeaseLost",
    "Message",
    "MessagePage",
    "Nack",
    "NewMessage",
    "NotFound",
    "Outcome",
    "PayloadTooLarge",
    "Queue",
    "QueueClosed",
    "QueueConfig",
    "QueueFull",
    "RateLimited",
    "Reject",
    "Release",
    "Replayed",
    "SchemaMismatch",
    "State",
    "Stats",
    "StorageError",
    "StorageFull",
    "TampuError",
    "Transition",
    "Unavailable",
    "VersionConflict",
    "Where",
    "exponential",
    "fixed",
    "linear",
    "open",
    "open_async",
]
