"""The types of messages, for feeds that filter by type: the journal records the type only at publish."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.broker.core import Core
from tampu.model.journal import Transition
from tampu.server.auth.grants import Caller
from tampu.server.listings import Listings

_MOST = 20_000


class Types:
    """A cache shared by the feeds of a node, so that each message is looked up once."""

    def __init__(self, core: Core, listings: Listings) -> None:
        self._core = core
        self._listings = listings
        self._known: dict[tuple[str, str], str] = {}

    async def of(self, caller: Caller, transitions: Sequence[Transition]) -> list[str | None]:
        """The type for each transition; None if the message is gone and its publish was not seen here."""
        known = self._known
        for transition in transitions:
            if transition.type is not None:
                known[transition.tenant, transition.id] = transition.type
        missing = list({(transition.tenant, transition.id) for transition in transitions} - known.keys())
        found = await self._listings.call(caller, self._read, missing, refuse=False) if missing else {}
        known.update(found)
        types = [known.get((transition.tenant, transition.id)) for transition in transitions]
        while len(known) > _MOST:
            del known[next(iter(known))]
        return types

    def _read(self, missing: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        found = {}
        for tenant, id in missing:
            message = self._core.engine.get(tenant, id)
            if message is not None:
                found[tenant, id] = message.type
        return found
