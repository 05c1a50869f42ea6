"""How many messages one claim may take, so that its answer has a bounded size.

A claim takes messages by number, and only then knows their bytes. So the first claim of a queue is small, and later
ones follow the size of what was claimed before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.model.message import Lease

MAX_BYTES = 8 << 20
"""What an answer may have, more or less: it has whole messages, and those of one claim."""
_FIRST = 32
_MOST = 1000
"""Messages of one claim, however small those before were."""
_OVERHEAD = 500
_MOST_KNOWN = 10_000


def size(leases: Sequence[Lease]) -> int:
    """About the bytes of these leases in an answer."""
    return sum(len(lease.message.body.payload) + _OVERHEAD for lease in leases)


class ClaimSizes:
    def __init__(self) -> None:
        self._bytes: dict[tuple[str, str], int] = {}
        """Bytes of a message in the last claim, by tenant and first queue."""

    def limit(self, tenant: str, queues: Sequence[str], wanted: int, room: int = MAX_BYTES) -> int:
        """How many to claim now; at least one."""
        known = self._bytes.get((tenant, queues[0])) if queues else None
        most = _FIRST if known is None else max(1, min(_MOST, room // known))
        return min(wanted, most)

    def note(self, tenant: str, queues: Sequence[str], leases: Sequence[Lease]) -> None:
        if leases:
            if len(self._bytes) >= _MOST_KNOWN:
                self._bytes.clear()
            self._bytes[tenant, queues[0]] = size(leases) // len(leases)
