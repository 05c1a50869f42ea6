"""Grants: what an API key may do, by patterns of queue names."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

Permission = Literal["view", "publish", "consume", "operate", "review", "admin"]
PERMISSIONS: tuple[str, ...] = get_args(Permission)
END = r"(?![\s\S])"
"""The end of a text in a pattern, in Python and in JSON schemas. (``$`` also matches before a last line break.)"""

Role = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_.:-]{{1,128}}{END}")]
QueuePattern = Annotated[str, Meta(pattern=rf"^[A-Za-z0-9_.:@*-]{{1,128}}{END}")]


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Permissions on the queues whose name matches a pattern; ``*`` matches any characters.

    ``admin`` includes all others; with the pattern ``*`` also managing the keys of the tenant. With ``roles``, the
    permission ``review`` is only for reviews of these roles.
    """

    permissions: Annotated[tuple[Permission, ...], Meta(min_length=1, max_length=6)]
    queues: Annotated[tuple[QueuePattern, ...], Meta(min_length=1, max_length=100)] = ("*",)
    roles: Annotated[tuple[Role, ...], Meta(max_length=20)] = ()
