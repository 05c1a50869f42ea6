"""A document: a small JSON value of an application, with a version."""

from __future__ import annotations

from typing import Any

import msgspec


class Document(msgspec.Struct, frozen=True):
    """What `Store.get_document` returns. ``version`` grows with every change."""

    kind: str
    name: str
    version: int
    value: Any
