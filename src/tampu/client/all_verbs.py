"""All verbs over HTTP, apart from how requests are sent: `remote` does so over the network."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.broker.settings import Settings, resolve
from tampu.broker.store import AllVerbs
from tampu.client.admin import RemoteAdmin, RemoteAgentVerbs, RemoteScheduleVerbs
from tampu.client.atomic import RemoteAtomic
from tampu.client.dead import RemoteDeadVerbs
from tampu.client.erasure import RemoteErasureVerbs
from tampu.client.policies import RemotePolicyVerbs
from tampu.client.request import Request
from tampu.client.reviews import RemoteReviewVerbs
from tampu.client.topology import RemoteTopologyVerbs
from tampu.client.verbs import RemoteNotes
from tampu.model.config import BUILT_IN
from tampu.model.errors import TampuError
from tampu.wire.problems import from_answer

_NO_LIMITS = resolve(msgspec.structs.replace(BUILT_IN, max_payload=1 << 30))


class AllRemoteVerbs(
    RemoteAtomic,
    RemoteAdmin,
    RemoteDeadVerbs,
    RemoteNotes,
    RemoteScheduleVerbs,
    RemoteAgentVerbs,
    RemoteReviewVerbs,
    RemotePolicyVerbs,
    RemoteTopologyVerbs,
    RemoteErasureVerbs,
    AllVerbs,
):
    """All verbs, for one tenant of a server."""


class NoSettings:
    """The server checks queue settings; the client does not know them."""

    def get(self, _tenant: str, _queue: str) -> Settings:
        return _NO_LIMITS


class RemoteEngine:
    """The properties of the server's engine that a store shows."""

    capabilities: frozenset[str] = frozenset({"group_order"})

    def __init__(self, durability: str) -> None:
        self.durability = durability


def read_reply(request: Request, status: int, body: bytes) -> Any:
    """What a verb gets of a response; raises the error that it tells of."""
    if status >= 300:
        raise from_answer(status, body)
    try:
        return request.read(body)
    except msgspec.MsgspecError as error:
        hint = "check that the url is a tampu server"
        raise TampuError(f"cannot decode the server's response: {error}", hint=hint) from None
