"""Dead letters across queues over HTTP: one request each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from tampu.broker.admin.verbs import MessagePage
from tampu.broker.core import Steps
from tampu.broker.dead.filters import DeadFilter, DeadFilters
from tampu.broker.dead.verbs import DeadVerbs
from tampu.client.request import call, quoted, reader
from tampu.model.dead import DeadGroups, DeadJob
from tampu.wire import bodies, dead
from tampu.wire.messages import to_message

_READ_PAGE = reader(bodies.MessagesView, lambda page: MessagePage([to_message(m) for m in page.messages], page.cursor))
_READ_GROUPS = reader(DeadGroups)
_READ_JOB = reader(DeadJob)
_READ_JOBS = reader(dead.DeadJobs, lambda reply: reply.replays)


def _query(filters: DeadFilters) -> list[tuple[str, Any]]:
    DeadFilter.of(filters)
    given: dict[str, Any] = dict(filters)
    return [
        (name, value.isoformat() if name in ("since", "until") else value) for name, value in given.items() if value
    ]


def _path(id: Any, verb: str = "") -> str:
    return f"/v1/dead/replays/{quoted(str(id))}{verb}"


def _ids(ids: str | Sequence[str] | None) -> list[str] | None:
    return [ids] if isinstance(ids, str) else None if ids is None else list(ids)


class RemoteDeadVerbs(DeadVerbs):
    def list_dead(
        self, *, after: str | None = None, limit: int = 100, **filters: Unpack[DeadFilters]
    ) -> Steps[MessagePage]:
        query = [*_query(filters), ("after", after), ("limit", limit)]
        return (yield from call("GET", "/v1/dead", _READ_PAGE, query=query))

    def group_some_dead(self, *, after: str | None = None, **filters: Unpack[DeadFilters]) -> Steps[DeadGroups]:
        return (yield from call("GET", "/v1/dead/groups", _READ_GROUPS, query=[*_query(filters), ("after", after)]))

    def replay_dead(
        self,
        ids: str | Sequence[str] | None = None,
        *,
        rate: str | float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        **filters: Unpack[DeadFilters],
    ) -> Steps[DeadJob]:
        DeadFilter.of(filters)
        body = dead.DeadReplayBody(ids=_ids(ids), rate=rate, limit=limit, dry_run=dry_run, **filters)
        return (yield from call("POST", "/v1/dead/replay", _READ_JOB, body, repeat=dry_run))

    def purge_dead(
        self,
        ids: str | Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        after: str | None = None,
        **filters: Unpack[DeadFilters],
    ) -> Steps[DeadJob]:
        DeadFilter.of(filters)
        body = dead.DeadPurgeBody(ids=_ids(ids), dry_run=dry_run, after=after, **filters)
        return (yield from call("POST", "/v1/dead/purge", _READ_JOB, body, repeat=dry_run))

    def list_dead_replays(self) -> Steps[list[DeadJob]]:
        return (yield from call("GET", "/v1/dead/replays", _READ_JOBS))

    def get_dead_replay(self, id: str) -> Steps[DeadJob]:
        return (yield from call("GET", _path(id), _READ_JOB))

    def cancel_dead_replay(self, id: str) -> Steps[DeadJob]:
        return (yield from call("DELETE", _path(id), _READ_JOB, repeat=False))

    def undo_dead_replay(self, id: str) -> Steps[DeadJob]:
        return (yield from call("POST", _path(id, "/undo"), _READ_JOB, repeat=False))
