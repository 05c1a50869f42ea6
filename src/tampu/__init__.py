"""tampu: a durable task queue. README.md has a quick start. The names below are the public ones."""

from tampu.broker.admin.filters import Where
from tampu.broker.admin.verbs import MessagePage, Replayed, Stats
from tampu.broker.async_store import AsyncStore
from tampu.broker.atomic import Document, Reply, Unit
from tampu.broker.store import Store
from tampu.model.agents import Agent
from tampu.model.audit import AuditPage, AuditRecord
from tampu.model.config import Backoff, QueueConfig, exponential, fixed, linear
from tampu.model.dead import DeadGroup, DeadGroups, DeadJob
from tampu.model.definitions import Alert, Firing, Hold, Rule, RuleTest, Schema, Subscription
from tampu.model.erasure import Erasure, Subject
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
    Unauthorized,
    Unavailable,
    VersionConflict,
)
from tampu.model.flows import FlowMember, FlowMemberView, FlowPage, FlowRecord
from tampu.model.journal import FollowerStatus, JournalPage, Transition
from tampu.model.message import Failure, Lease, Message, NewMessage, Progress, State
from tampu.model.outcome import Ack, Nack, Outcome, Reject, Release
from tampu.model.reviews import Decision, ReviewPage, ReviewPattern, ReviewPreview, ReviewRecord
from tampu.model.schedule import Schedule
from tampu.model.topology import Applied, TopologyChange
from tampu.model.trace import Trace, TraceEvent, TraceMessage
from tampu.store_factory import open, open_async
from tampu.worker.app import App
from tampu.worker.current import Current, current
from tampu.worker.exceptions import FlowFailed, Retry, Review, Snooze, TaskFailed
from tampu.worker.flows import Chain, FlowBuilder, FlowNode, FlowRun, Group, chain, group, map, message
from tampu.worker.hand_over import HandOver
from tampu.worker.published import Published
from tampu.worker.runner import Runner, RunnerOptions, working
from tampu.worker.tasks import Middleware, Task, TaskMessage

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Agent",
    "Alert",
    "App",
    "Applied",
    "AsyncStore",
    "AuditPage",
    "AuditRecord",
    "Backoff",
    "Chain",
    "Current",
    "DamagedFile",
    "DeadGroup",
    "DeadGroups",
    "DeadJob",
    "Decision",
    "Document",
    "Erasure",
    "Failure",
    "Firing",
    "FlowBuilder",
    "FlowFailed",
    "FlowMember",
    "FlowMemberView",
    "FlowNode",
    "FlowPage",
    "FlowRecord",
    "FlowRun",
    "FollowerStatus",
    "Forbidden",
    "ForeignFile",
    "Group",
    "HandOver",
    "Hold",
    "IdempotencyConflict",
    "InvalidConfig",
    "InvalidMessage",
    "InvalidState",
    "JournalPage",
    "Lease",
    "LeaseLost",
    "Message",
    "MessagePage",
    "Middleware",
    "Nack",
    "NewMessage",
    "NotFound",
    "Outcome",
    "PayloadTooLarge",
    "Progress",
    "Published",
    "QueueClosed",
    "QueueConfig",
    "QueueFull",
    "RateLimited",
    "Reject",
    "Release",
    "Replayed",
    "Reply",
    "Retry",
    "Review",
    "ReviewPage",
    "ReviewPattern",
    "ReviewPreview",
    "ReviewRecord",
    "Rule",
    "RuleTest",
    "Runner",
    "RunnerOptions",
    "Schedule",
    "Schema",
    "SchemaMismatch",
    "Snooze",
    "State",
    "Stats",
    "StorageError",
    "StorageFull",
    "Store",
    "Subject",
    "Subscription",
    "TampuError",
    "Task",
    "TaskFailed",
    "TaskMessage",
    "TopologyChange",
    "Trace",
    "TraceEvent",
    "TraceMessage",
    "Transition",
    "Unauthorized",
    "Unavailable",
    "Unit",
    "VersionConflict",
    "Where",
    "chain",
    "current",
    "exponential",
    "fixed",
    "group",
    "linear",
    "map",
    "message",
    "open",
    "open_async",
    "working",
]
