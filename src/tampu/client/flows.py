"""Flows over HTTP: one request each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.policies.flows import ids
from tampu.broker.policies.flows.graph import checked
from tampu.broker.policies.flows.verbs import FlowVerbs, lease_of
from tampu.client.request import call, nap, reader
from tampu.client.verbs import RemoteVerbs
from tampu.model.flows import FlowMember, FlowPage, FlowRecord
from tampu.model.message import Lease
from tampu.model.times import SECOND, Duration, duration
from tampu.wire import flows as wire

_READ = reader(FlowRecord)
_READ_LIST = reader(wire.FlowsView, lambda reply: FlowPage(reply.flows, reply.cursor))
_READ_ID = reader(wire.PublishedFlow, lambda reply: reply.id)
_READ_IDS = reader(wire.AddedToFlow, lambda reply: reply.ids)
_READ_REPLAYED = reader(wire.ReplayedFlow)
_FIRST_PAUSE, _LAST_PAUSE, _GROWTH = 0.01, 1.0, 1.5


def _path(id: str, verb: str = "") -> str:
    return f"/v1/flows/{validate.id_text(id)}{verb}"


class RemoteFlowVerbs(RemoteVerbs, FlowVerbs):
    def _written(self, members: Sequence[FlowMember]) -> list[dict[str, Any]]:
        """Members as they are written in a request."""
        made = []
        for one in members:
            _, (message,) = self.outgoing(one.queue, [one.message])
            made.append({
                "queue": one.queue, "message": message, "after": list(one.after), "on_failure": one.on_failure,
                "into": one.into, "many": one.many,
            })  # fmt: skip
        return made

    def publish_flow(
        self,
        members: Sequence[FlowMember],
        *,
        name: str = "flow",
        correlation_id: str | None = None,
        id: str | None = None,
    ) -> Steps[str]:
        checked(members)
        body = {
            "members": self._written(members), "name": name, "correlation_id": correlation_id,
            "id": id or ids.new_flow(time.time_ns() // 1000),
        }  # fmt: skip
        return (yield from call("POST", "/v1/flows", _READ_ID, body, repeat=True))

    def add_to_flow(
        self,
        lease: Lease | str,
        members: Sequence[FlowMember],
        *,
        n: int = 1,
        joins: bool = True,
        id: str | None = None,
    ) -> Steps[list[str]]:
        receipt, adder = lease_of(lease, id)
        checked(members, adder=adder)
        body = {"receipt": receipt, "id": adder, "members": self._written(members), "n": n, "joins": joins}
        return (yield from call("POST", "/v1/flows/members", _READ_IDS, body, repeat=True))

    def get_flow(self, id: str, *, limit: int = 0) -> Steps[FlowRecord]:
        return (yield from call("GET", _path(id), _READ, query=[("limit", limit)]))

    def list_flows(
        self, *, name: str | None = None, status: str | None = None, limit: int = 100, after: str | None = None
    ) -> Steps[FlowPage]:
        query = [("name", name), ("status", status), ("limit", limit), ("after", after)]
        return (yield from call("GET", "/v1/flows", _READ_LIST, query=query))

    def wait_flow(self, id: str, *, wait: Duration = 0) -> Steps[FlowRecord]:
        until = time.monotonic() + duration(wait, "wait") / SECOND
        pause = _FIRST_PAUSE
        while True:
            found = yield from self.get_flow(id)
            left = until - time.monotonic()
            if found.status != "running" or left <= 0 or self.core.closed:
                return found
            yield from nap(min(left, pause))
            pause = min(_LAST_PAUSE, pause * _GROWTH)

    def cancel_flow(self, id: str) -> Steps[FlowRecord]:
        return (yield from call("POST", _path(id, "/cancel"), _READ, repeat=True))

    def replay_flow(self, id: str, *, failed_only: bool = True) -> Steps[Any]:
        body = wire.ReplayFlow(failed_only)
        found = yield from call("POST", _path(id, "/replay"), _READ_REPLAYED, body, repeat=failed_only)
        return found.count if failed_only else found.id
