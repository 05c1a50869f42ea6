"""The verbs of legal holds: put, get, list and delete; and how a purge keeps what they cover."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.broker.core import Read, Steps
from tampu.broker.policies.definitions import DefinitionVerbs, Kind, current, texts
from tampu.engines.port import Engine, Page, Remove
from tampu.model.definitions import Hold
from tampu.model.errors import InvalidConfig, InvalidState
from tampu.model.message import State
from tampu.model.outcome import Outcome

_STEP = 200
_MOST_TEXT = 1000


class Holds(Kind[Hold]):
    word = "hold"
    plural = "holds"
    struct = Hold

    def check(self, definition: Hold) -> Hold:
        texts(definition.queues, "queues")
        if not 0 < len(definition.reason) <= _MOST_TEXT:
            raise InvalidConfig(f"reason must be a text of 1 to {_MOST_TEXT} characters", field="reason")
        return definition

    def places(self, definition: Hold) -> tuple[str, ...]:
        return definition.queues or ("*",)


HOLDS = Holds()


class HoldVerbs(DefinitionVerbs):
    def put_hold(
        self,
        name: str,
        *,
        reason: str,
        queues: str | list[str] | tuple[str, ...] | None = None,
        labels: dict[str, str] | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
    ) -> Steps[Hold]:
        """Messages that match all of the conditions are not erased, purged or removed by retention.

        Without any condition it covers all messages of the tenant. Retention removes nothing at all from queues that a
        hold is for, and no result either, also when ``result_ttl`` is over. Workers still work.
        """
        fields = {
            "reason": reason, "queues": texts(queues, "queues"), "labels": labels or {}, "key": key,
            "correlation_id": correlation_id,
        }  # fmt: skip
        return (yield from self.put_definition(HOLDS, HOLDS.made(name, fields)))

    def get_hold(self, name: str) -> Steps[Hold]:
        """A hold as it is now."""
        return (yield from self.get_definition(HOLDS, name))

    def list_holds(self) -> Steps[list[Hold]]:
        """All holds, by name."""
        return (yield from self.list_definitions(HOLDS))

    def delete_hold(self, name: str) -> Steps[bool]:
        """End a hold; false if there was none."""
        return (yield from self.delete_definition(HOLDS, name))


def holds_of(engine: Engine, tenant: str, queue: str | None = None) -> list[Hold]:
    """The holds of a tenant, or those that are for a queue."""
    found = current(engine, tenant, HOLDS)
    return found if queue is None else [hold for hold in found if hold.applies_to(queue)]


def check_removal(holds: Sequence[Hold], queue: str) -> None:
    """Refuse to remove a queue, or to purge it as a whole, while a hold is for it."""
    for hold in holds:
        raise InvalidState(
            f"queue {queue} is under the legal hold {hold.name}: {hold.reason:.200}", field="queue",
            hint=f"see tampu hold show {hold.name}",
        )  # fmt: skip


def purge_others(tenant: str, actor: str, queue: str, states: Sequence[State], holds: Sequence[Hold]) -> Steps[int]:
    """Remove the messages of a queue that no hold covers, page by page. Returns how many."""
    total = 0
    for state in states:
        after = None
        while True:
            page: Page | None = yield Read(
                lambda e, s=state, a=after: e.page(tenant, queue, s, a, _STEP)  # type: ignore[misc]  # bound now
            )
            if page is None:
                break
            ids = [m.id for m in page.messages if not any(hold.covers(m) for hold in holds)]
            if ids:
                outcomes: list[Outcome] = yield Remove(tenant, ids, actor)
                total += sum(outcome.ok for outcome in outcomes)
            if page.cursor is None:
                break
            after = page.cursor
    return total
