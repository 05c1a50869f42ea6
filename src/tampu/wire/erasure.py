"""Erasures on the wire."""

from __future__ import annotations

import msgspec

from tampu.model.erasure import Erasure
from tampu.wire.bodies import RequestBody
from tampu.wire.media import Form


class Erase(RequestBody):
    """Whose messages to remove: give one of the first four."""

    label: tuple[str, str] | None = None
    key: str | None = None
    correlation_id: str | None = None
    path: tuple[str, str] | None = None
    """A path and a value, such as ``["payload.user.id", "42"]``."""
    dry_run: bool = False


class Erasures(msgspec.Struct):
    erasures: list[Erasure]


ERASE = Form(Erase)
