"""Frames of a worker's WebSocket stream, in MessagePack.

The worker first names its queues (`Open`), then says how many messages it can take (`Ready`; credits add up). The
server pushes `Leases`, never more than the credit. The worker numbers its `Settle` and `Extend` frames; the replies
carry the same number and come in the same order.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tampu.model.decoders import from_msgpack
from tampu.model.times import Seconds
from tampu.wire import bodies
from tampu.wire.messages import LeaseView
from tampu.wire.problems import ItemError

PATH = "/v1/stream"
MOST_CREDIT = 10_000
BAD_FRAME, UNAUTHORIZED, FORBIDDEN, STOPPING = 4400, 4401, 4403, 1001
"""WebSocket close codes the server uses."""


class _FromWorker(msgspec.Struct, tag_field="op", tag=str.lower, forbid_unknown_fields=True, omit_defaults=True):
    """A frame that a worker sends."""


class Open(_FromWorker):
    queues: Annotated[list[str], Meta(max_length=1000)]
    lease: Seconds | None = None
    worker: str | None = None


class Ready(_FromWorker):
    """The worker can take ``n`` more messages."""

    n: Annotated[int, Meta(ge=1, le=MOST_CREDIT)]


class Stop(_FromWorker):
    """Push no more messages. Those already pushed can still be settled."""


class Settle(_FromWorker):
    seq: int
    settlements: Annotated[list[bodies.Settlement], Meta(max_length=10_000)]


class Extend(_FromWorker):
    seq: int
    leases: Annotated[list[bodies.ExtendItem], Meta(max_length=10_000)]


class _FromServer(msgspec.Struct, tag_field="op", tag=str.lower, omit_defaults=True):
    """A frame that the server sends."""


class Opened(_FromServer):
    max_frame: int = 1 << 20
    """Maximum bytes of a frame that the server takes."""


class Stopped(_FromServer):
    """The reply to `Stop`: no more leases follow."""


class Leases(_FromServer):
    leases: list[LeaseView]


class Settled(_FromServer):
    seq: int
    outcomes: list[bodies.OutcomeView]


class Extended(_FromServer):
    seq: int
    leases: list[bodies.ExtendedView]


class Refused(_FromServer):
    """The frame with this number was refused as a whole. Without a number the stream was refused and is closed."""

    error: ItemError
    seq: int | None = None
    retry_after: float | None = None


WorkerFrame = Open | Ready | Stop | Settle | Extend
ServerFrame = Opened | Stopped | Leases | Settled | Extended | Refused
WORKER_FRAME: msgspec.msgpack.Decoder[WorkerFrame] = from_msgpack(WorkerFrame)
SERVER_FRAME: msgspec.msgpack.Decoder[ServerFrame] = from_msgpack(ServerFrame)
write = msgspec.msgpack.Encoder().encode
