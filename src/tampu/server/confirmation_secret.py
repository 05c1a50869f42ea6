"""The secret that signs confirmation tokens. It is stored, so that each node takes the tokens of the others.

It protects from mistakes, not from attackers: who has a token may carry out the call in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from tampu.broker.core import Core
from tampu.engines.port import PutDocument
from tampu.model.errors import VersionConflict
from tampu.server.auth.keys import TENANT

_KIND = "confirmation"
_NAME = "secret"


async def secret_of(core: Core) -> bytes:
    """The secret of this store, made at the first call."""

    def read() -> bytes | None:
        found = core.engine.document(_KIND, TENANT, _NAME)
        return None if found is None else found.value

    known = await asyncio.to_thread(read)
    if known is None:
        with contextlib.suppress(VersionConflict):  # another node was faster
            await core.coalescer.submit_async(PutDocument(_KIND, TENANT, _NAME, secrets.token_hex(32).encode(), 0))
        known = await asyncio.to_thread(read)
    assert known is not None
    return known
