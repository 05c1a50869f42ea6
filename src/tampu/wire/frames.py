"""Frames of a worker's stream, in MessagePack: what the worker says, and what the server answers or pushes.

The worker says first which queues it works for (`Open`), then how many messages it can take (`Ready`; credits add up).
The server pushes `Leases`, never more than there is credit. `Settle` and `Extend` carry a number of the worker's own;
their answers carry it too and come in the order of the questions.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tampu.model.decoders import from_msgpack
from tampu.model.times import Duration
from tampu.wire import bodies
from tampu.wire.messages import LeaseView
from tampu.wire.problems import ItemError

PATH = "/v1/stream"
MOST_CREDIT = 10_000
BAD_FRAME, UNAUTHORIZED, FORBIDDEN, STOPPING = 4400, 4401, 4403, 1001
"""Codes with which the server closes a stream."""


class _Said(msgspec.Struct, tag_field="op", tag=str.lower, forbid_unknown_fields=True, omit_defaults=True):
    """A frame of the worker."""


class Open(_Said):
    queues: list[str]
    lease: Duration | None = None
    worker: str | None = None


class Ready(_Said):
    """The worker can take so many more messages."""

    n: Annotated[int, Meta(ge=1, le=MOST_CREDIT)]


class Stop(_Said):
    """Push nothing more. What has been pushed may still be settled."""


class Settle(_Said):
    seq: int
    settlements: list[bodies.Settlement]


class Extend(_Said):
    seq: int
    leases: list[bodies.ExtendItem]


class _Told(msgspec.Struct, tag_field="op", tag=str.lower, omit_defaults=True):
    """A frame of the server."""


class Opened(_Told):
    pass


class Stopped(_Told):
    """All that was claimed for this stream has been sent."""


class Leases(_Told):
    leases: list[LeaseView]


class Settled(_Told):
    seq: int
    outcomes: list[bodies.OutcomeView]


class Extended(_Told):
    seq: int
    leases: list[bodies.ExtendedView]


class Refused(_Told):
    """The question with this number was refused as a whole; without a number, the stream was, and is closed."""

    error: ItemError
    seq: int | None = None
    retry_after: float | None = None


Said = Open | Ready | Stop | Settle | Extend
Told = Opened | Stopped | Leases | Settled | Extended | Refused
SAID: msgspec.msgpack.Decoder[Said] = from_msgpack(Said)
TOLD: msgspec.msgpack.Decoder[Told] = from_msgpack(Told)
write = msgspec.msgpack.Encoder().encode
