"""Bodies of the routes of flows."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tampu.model.flows import FlowRecord
from tampu.wire.bodies import BinaryMessage, JsonMessage, RequestBody
from tampu.wire.media import Form

_MOST = Meta(max_length=20_000)
_PARENTS = Annotated[list[int | str | list[int]], _MOST]
Policy = Literal["fail", "skip", "run"]


class Member(RequestBody):
    """A message of a flow. ``after`` has indexes of earlier members, runs of them ``[first, count]``, and ids of
    members that the flow has already."""

    queue: str
    message: BinaryMessage
    after: _PARENTS = msgspec.field(default_factory=list)
    on_failure: Policy = "fail"
    into: str | None = None
    many: bool | None = None


class MemberJson(RequestBody):
    queue: str
    message: JsonMessage
    after: _PARENTS = msgspec.field(default_factory=list)
    on_failure: Policy = "fail"
    into: str | None = None
    many: bool | None = None


class PublishFlow(RequestBody):
    """``id``: chosen by the client, so that it can send the request again."""

    members: Annotated[list[Member], _MOST]
    name: str = "flow"
    correlation_id: str | None = None
    id: str | None = None


class PublishFlowJson(RequestBody):
    members: Annotated[list[MemberJson], _MOST]
    name: str = "flow"
    correlation_id: str | None = None
    id: str | None = None


class AddToFlow(RequestBody):
    """Members that a running one adds; ``receipt`` and ``id`` are its own. The same ``n`` adds only once."""

    receipt: str
    id: str
    members: Annotated[list[Member], _MOST]
    n: int = 1
    joins: bool = True


class AddToFlowJson(RequestBody):
    receipt: str
    id: str
    members: Annotated[list[MemberJson], _MOST]
    n: int = 1
    joins: bool = True


class ReplayFlow(RequestBody):
    failed_only: bool = True


class PublishedFlow(RequestBody):
    id: str


class AddedToFlow(RequestBody):
    ids: list[str]


class ReplayedFlow(RequestBody):
    """``id`` is that of the new flow, if all of it was published again."""

    count: int = 0
    id: str | None = None


class FlowsView(RequestBody):
    flows: list[FlowRecord]
    cursor: str | None = None


PUBLISH = Form(PublishFlow, PublishFlowJson)
ADD = Form(AddToFlow, AddToFlowJson)
REPLAY = Form(ReplayFlow)
