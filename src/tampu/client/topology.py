"""Topologies over HTTP. Files are read here, so that a mistake is named with its line."""

from __future__ import annotations

from typing import Any

from tampu.broker.core import Steps
from tampu.broker.topology.verbs import TopologyVerbs, checked
from tampu.client.request import call, reader
from tampu.model.topology import Applied
from tampu.wire.topology import ApplyTopology, TopologyView

_READ_APPLIED = reader(Applied)
_READ_TOPOLOGY = reader(TopologyView, lambda reply: reply.topology)


class RemoteTopologyVerbs(TopologyVerbs):
    def apply_data(self, data: Any, *, dry_run: bool, prune: bool) -> Steps[Applied]:
        body = ApplyTopology(dict(checked(data)), dry_run, prune)
        return (yield from call("POST", "/v1/topology", _READ_APPLIED, body, repeat=dry_run))

    def export_topology(self) -> Steps[dict[str, dict[str, Any]]]:
        return (yield from call("GET", "/v1/topology", _READ_TOPOLOGY))
