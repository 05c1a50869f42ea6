"""Topologies on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.wire.bodies import RequestBody
from tampu.wire.media import Form


class ApplyTopology(RequestBody):
    """What a topology file has: by section, by name, the fields of an entry."""

    topology: dict[str, Any]
    dry_run: bool = False
    prune: bool = False
    """Remove what sections of the topology do not have."""


class TopologyView(msgspec.Struct):
    topology: dict[str, dict[str, dict[str, Any]]]


class TopologySchema(msgspec.Struct):
    schema: dict[str, Any]


APPLY_TOPOLOGY = Form(ApplyTopology, has_any=True)
