"""The follower of flows: it counts the ends of members, and frees or cancels those that waited for them.

It alone writes the state of flows, in one unit with its position, so each end counts once whatever crashes. Whom to
free or cancel is stored with the position too. Carrying that out looks at the state again and changes only members that
are still held for their parents: done twice, it changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tampu.broker import timers
from tampu.broker.core import Core
from tampu.broker.followers import Effects, do_named
from tampu.broker.policies.flows import results, stored
from tampu.broker.policies.flows.ids import is_member
from tampu.broker.policies.flows.progress import Graphs, Progress, Source
from tampu.engines.port import Cancel, Document, Free
from tampu.model.errors import InvalidMessage, StorageError
from tampu.model.flows import HOLD, HOLD_FOR_RESULTS
from tampu.model.journal import Transition
from tampu.model.message import Message
from tampu.model.reasons import DECODE_FAILED
from tampu.model.states import State, has_ended
from tampu.model.times import SECOND
from tampu.model.values import pack_body

log = logging.getLogger("tampu")
ACTOR = "tampu"
KEPT_US = 7 * 86_400 * SECOND
"""How long after its end a flow can be seen."""
_MOST_BYTES = 4 << 20
"""Of bodies in one call."""


class FlowFollower:
    name = stored.FOLLOWER

    def __init__(self) -> None:
        self._graphs = Graphs()

    def handle(self, transitions: Sequence[Transition], effects: Effects) -> None:
        tenants: dict[str, tuple[Progress, Transition]] = {}
        for cause in transitions:
            if not is_member(cause.id):
                continue
            effects.look_again_soon()
            if has_ended(cause.state) or cause.verb in ("publish", "replay", "adopt"):
                if cause.tenant not in tenants:
                    tenants[cause.tenant] = Progress(_Stored(effects), cause.tenant, self._graphs), cause
                progress, _ = tenants[cause.tenant]
                tenants[cause.tenant] = progress, cause
                progress.see(cause.id, cause.state, cause.verb, cause.at_us)
        for tenant, (progress, last) in tenants.items():
            for kind, name, value in progress.finish():
                effects.put_document(kind, tenant, name, value)
            effects.act(last, *progress.acts)
            for flow in progress.ended:
                effects.publish(
                    last, timers.QUEUE, {"id": flow}, type=timers.FLOW, delay=KEPT_US / SECOND, correlation_id=flow
                )

    def act(self, core: Core, tenant: str, ids: Sequence[str]) -> None:
        """Free these members, or cancel them, as is decided by now."""
        progress = Progress(_Engine(core), tenant, self._graphs)
        free: list[tuple[str, bytes | None]] = []
        size = 0
        for id in ids:
            try:
                call = _call_for(core, tenant, progress, id)
            except StorageError:
                raise
            except LookupError as error:
                log.warning("%s is not freed: %s", id, error)
                continue
            except Exception:  # others go on
                log.exception("%s is neither freed nor cancelled", id)
                continue
            if isinstance(call, Cancel):
                do_named(core, call)
            elif call is not None:
                (body,) = call.bodies
                free.append((id, body))
                size += len(body or b"")
                if size > _MOST_BYTES:
                    _free(core, tenant, free)
                    free, size = [], 0
        _free(core, tenant, free)


def _call_for(core: Core, tenant: str, progress: Progress, id: str) -> Cancel | Free | None:
    """What is to be done with a member by now."""
    decided = progress.decided(id)
    if decided is None:
        return None
    message = core.engine.get(tenant, id)
    if message is None or message.state is not State.HELD or message.reason not in (HOLD, HOLD_FOR_RESULTS):
        return None
    _, graph, number, letter = decided
    if letter == stored.OPEN:
        try:
            return Free(tenant, [id], [_body(core, progress, graph, number, message)])
        except results.CannotRun as error:
            return Cancel(tenant, [id], error.reason, str(error), actor=ACTOR)
        except (LookupError, InvalidMessage) as error:
            return Cancel(tenant, [id], DECODE_FAILED, f"its payload cannot be made: {error}", actor=ACTOR)
    why = "skipped" if letter == stored.SKIPPED else "flow_cancelled" if _cancelled(decided) else "parent_failed"
    return None if letter == stored.BLOCKED else Cancel(tenant, [id], reason=why, actor=ACTOR)


def _cancelled(decided: tuple[stored.Head | None, stored.Graph, int, str]) -> bool:
    head = decided[0]
    return head is None or bool(head.cancelled_us)


def _free(core: Core, tenant: str, members: Sequence[tuple[str, bytes | None]]) -> None:
    if members:
        do_named(core, Free(tenant, [id for id, _ in members], [body for _, body in members], actor=ACTOR))


def _body(core: Core, progress: Progress, graph: stored.Graph, number: int, message: Message) -> bytes | None:
    """The new body of a member that runs; None if it keeps its own."""
    into: str | None = graph.of("intos", number)
    if into is None:
        return None
    waits = graph.part.sets[graph.set_of[number]]
    part, _ = stored.place_of(message.id)
    parents = list(progress.parents(graph, part, number))
    body = results.body_of(
        core.engine,
        lambda queue: core.settings.get(message.tenant, queue),
        message,
        parents,
        into,
        many=waits.many or len(parents) > 1,
    )
    return pack_body(body)


class _Stored(Source):
    """Documents as a handler sees them."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        return self._effects.document(kind, tenant, name)

    def documents(self, kind: str, tenant: str, prefix: str, limit: int | None = None) -> list[Document]:
        return self._effects.documents(kind, tenant, prefix, limit)


class _Engine(Source):
    """Documents of a store."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        return self._core.engine.document(kind, tenant, name)

    def documents(self, kind: str, tenant: str, prefix: str, limit: int | None = None) -> list[Document]:
        return self._core.engine.documents(kind, tenant, prefix, limit=limit)
