"""Administration over HTTP: queues (list, stats, replay, purge, settings), schedules, agents and followers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.admin.checks import Checks, Finding
from tampu.broker.admin.filters import Where
from tampu.broker.admin.verbs import MessagePage, Replayed, Stats, check_replay, purged_states
from tampu.broker.admin.verbs import state as checked_state
from tampu.broker.agents.verbs import AgentVerbs
from tampu.broker.core import Steps
from tampu.broker.schedules.verbs import ScheduleVerbs, Terms
from tampu.client.request import call, new_ids, quoted, reader
from tampu.client.verbs import outcome
from tampu.model.agents import Agent
from tampu.model.config import QueueConfig, change, is_pattern
from tampu.model.errors import InvalidMessage
from tampu.model.journal import FollowerStatus
from tampu.model.message import Message, State
from tampu.model.schedule import Schedule
from tampu.model.times import SECOND, moment_or_none, numeric
from tampu.wire import bodies
from tampu.wire.bodies import BinaryMessage
from tampu.wire.messages import MessageView, to_message
from tampu.wire.schedules import FireSchedule, ScheduleBody, SchedulesView, ScheduleView, to_schedule


def _stats(view: bodies.StatsView) -> Stats:
    age = view.oldest_ready_age
    return Stats(view.queue, view.counts, None if age is None else timedelta(seconds=age), view.status)


def _config_path(queue: Any) -> str:
    return f"/v1/queues/{quoted(validate.queue_or_scope(queue))}/config"


def _findings(reply: bodies.Checks) -> list[Finding]:
    return [(check.what, check.level, check.note) for check in reply.checks]


_READ_CHECKS = reader(bodies.Checks, _findings)
_READ_PAGE = reader(bodies.MessagesView, lambda page: MessagePage([to_message(m) for m in page.messages], page.cursor))
_READ_STATS = reader(bodies.StatsView, _stats)
_READ_ALL_STATS = reader(bodies.StatsMany, lambda reply: [_stats(view) for view in reply.queues])
_READ_REPLAYED = reader(
    bodies.ReplayedView,
    lambda reply: (
        [to_message(m) for m in reply.messages],
        [outcome(view) for view in reply.outcomes],
        reply.cursor,
    ),
)
_READ_COUNT = reader(bodies.Count, lambda reply: reply.count)
_READ_CONFIG = reader(QueueConfig)
_READ_SOURCES = reader(bodies.ConfigSources, lambda reply: reply.sources)
_READ_NAMES = reader(bodies.QueueNames, lambda reply: reply.queues)
_READ_DELETED = reader(bodies.Deleted, lambda reply: reply.deleted)
_STEP = 1000
"""Ids in one request."""
_VERB_OF = {"paused": "pause", "open": "resume", "draining": "drain", "closed": "close"}


class RemoteAdmin(Checks):
    def messages(
        self,
        queue: str,
        *,
        state: State | str | None = None,
        limit: int = 100,
        after: str | None = None,
        where: Where | dict[str, Any] | None = None,
    ) -> Steps[MessagePage]:
        validate.any_queue(queue)
        validate.whole(limit, "limit", 1, 10_000)
        if after is not None and not isinstance(after, str):
            raise InvalidMessage("after is not a cursor of these messages", field="after")
        query: list[tuple[str, Any]] = [
            ("state", None if state is None else str(checked_state(state))),
            ("limit", limit),
            ("after", after),
            *_conditions(Where.of(where)),
        ]
        return (yield from call("GET", f"/v1/queues/{queue}/messages", _READ_PAGE, query=query))

    def stats(self, queue: str | None = None) -> Steps[Any]:
        if queue is None:
            return (yield from call("GET", "/v1/stats", _READ_ALL_STATS))
        if is_pattern(validate.queue_or_scope(queue, system=True)):
            return (yield from call("GET", "/v1/stats", _READ_ALL_STATS, query=[("scope", queue)]))
        return (yield from call("GET", f"/v1/queues/{queue}/stats", _READ_STATS))

    def check(self) -> Steps[list[Finding]]:
        """The server's findings. Those about the whole store are only for keys of all tenants."""
        return (yield from call("GET", "/v1/check", _READ_CHECKS))

    def replay(
        self,
        queue: str,
        *,
        ids: Sequence[str] | None = None,
        where: Where | dict[str, Any] | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Steps[Replayed]:
        check_replay(queue, ids, where, limit)
        if ids is None:
            found = yield from self._ask_replay(queue, bodies.Replay(None, Where.of(where), limit, dry_run=True))
            if dry_run:
                return found
            # All are known before the first is replayed: one that dies again meanwhile is not replayed twice.
            ids, limit = [message.id for message in found.messages], None
        wanted = [validate.id_text(id) for id in ids]
        done = Replayed([], [], dry_run)
        for start in range(0, len(wanted), _STEP):
            left = None if limit is None else limit - len(done.messages)
            if left == 0:
                break
            part = yield from self._ask_replay(queue, bodies.Replay(wanted[start : start + _STEP], None, left, dry_run))
            done.messages.extend(part.messages)
            done.outcomes.extend(part.outcomes)
        return done

    def _ask_replay(self, queue: str, body: bodies.Replay) -> Steps[Replayed]:
        """Ask for part after part, until the server has no more or the limit is reached."""
        done = Replayed([], [], body.dry_run)
        limit = body.limit
        while True:
            messages, outcomes, cursor = yield from call(
                "POST", f"/v1/queues/{queue}/replay", _READ_REPLAYED, body, repeat=body.dry_run
            )
            done.messages.extend(messages)
            done.outcomes.extend(outcomes)
            if cursor is None:
                return done
            left = None if limit is None else limit - len(done.messages)
            body = msgspec.structs.replace(body, after=cursor, limit=left)

    def purge(self, queue: str, *, state: State | str | Iterable[State | str], dry_run: bool = False) -> Steps[int]:
        body = bodies.Purge(purged_states(queue, state), dry_run)
        return (yield from call("POST", f"/v1/queues/{queue}/purge", _READ_COUNT, body, repeat=dry_run))

    def put_config(self, queue: str, /, **changes: Any) -> Steps[QueueConfig]:
        path = _config_path(queue)
        changed = change(QueueConfig(), changes)
        body = {name: None if value is None else getattr(changed, name) for name, value in changes.items()}
        return (yield from call("PATCH", path, _READ_CONFIG, body))

    def get_config(self, queue: str, *, inherited: bool = True) -> Steps[QueueConfig]:
        query = [("inherited", "true" if inherited else "false")]
        return (yield from call("GET", _config_path(queue), _READ_CONFIG, query=query))

    def config_sources(self, queue: str) -> Steps[dict[str, str]]:
        return (yield from call("GET", f"{_config_path(queue)}/sources", _READ_SOURCES))

    def list_queues(self) -> Steps[list[str]]:
        return (yield from call("GET", "/v1/queues", _READ_NAMES))

    def reset_config(self, queue: str) -> Steps[bool]:
        return (yield from call("DELETE", _config_path(queue), _READ_DELETED, repeat=False))

    def remove_queue(self, queue: str, *, force: bool = False) -> Steps[int]:
        query = [("force", "true" if force else "false")]
        path = f"/v1/queues/{validate.name(queue, 'queue')}"
        return (yield from call("DELETE", path, _READ_COUNT, query=query, repeat=False))

    def _set_status(self, queue: str, status: str) -> Steps[None]:
        validate.name(queue, "queue")
        yield from call("POST", f"/v1/queues/{queue}/{_VERB_OF[status]}", _READ_CONFIG)


def _conditions(where: Where) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name in where.__struct_fields__:
        value = getattr(where, name)
        if isinstance(value, datetime):
            value = value.isoformat()
        elif isinstance(value, dict):
            value = msgspec.json.encode(value).decode()
        pairs.append((name, value))
    return pairs


_READ_FOLLOWER = reader(FollowerStatus)
_READ_FOLLOWERS = reader(bodies.FollowersView, lambda reply: reply.followers)


def _follower_path(name: str, verb: str = "") -> str:
    return f"/v1/followers/{quoted(validate.name(name, 'follower'))}{verb}"


_READ_AGENT = reader(Agent)
_READ_AGENTS = reader(bodies.AgentsView, lambda reply: reply.agents)


def _agent_path(name: str, verb: str = "") -> str:
    return f"/v1/agents/{quoted(validate.name(name, 'agent'))}{verb}"


class RemoteAgentVerbs(AgentVerbs):
    def list_agents(self) -> Steps[list[Agent]]:
        return (yield from call("GET", "/v1/agents", _READ_AGENTS))

    def get_agent(self, name: str) -> Steps[Agent]:
        return (yield from call("GET", _agent_path(name), _READ_AGENT))

    def run_agent(self, name: str) -> Steps[Agent]:
        return (yield from call("POST", _agent_path(name, "/run"), _READ_AGENT))

    def pause_agent(self, name: str) -> Steps[Agent]:
        return (yield from call("POST", _agent_path(name, "/pause"), _READ_AGENT))

    def resume_agent(self, name: str) -> Steps[Agent]:
        return (yield from call("POST", _agent_path(name, "/resume"), _READ_AGENT))

    def list_followers(self) -> Steps[list[FollowerStatus]]:
        return (yield from call("GET", "/v1/followers", _READ_FOLLOWERS))

    def resume_follower(self, name: str) -> Steps[FollowerStatus]:
        return (yield from call("POST", _follower_path(name, "/resume"), _READ_FOLLOWER))

    def remove_follower(self, name: str) -> Steps[bool]:
        return (yield from call("DELETE", _follower_path(name), _READ_DELETED, repeat=False))


_READ_SCHEDULE = reader(ScheduleView, to_schedule)
_READ_SCHEDULES = reader(SchedulesView, lambda reply: [to_schedule(view) for view in reply.schedules])
_READ_MESSAGE = reader(MessageView, to_message)


def _schedule_path(name: str, verb: str = "") -> str:
    return f"/v1/schedules/{quoted(validate.name(name, 'schedule'))}{verb}"


class RemoteScheduleVerbs(ScheduleVerbs):
    def put_terms(self, name: str, terms: Terms) -> Steps[Schedule]:
        body = terms.item.body
        given = terms.message
        fields = msgspec.structs.replace(
            given, content_type=body.content_type, delay=numeric(given.delay, "delay"), ttl=numeric(given.ttl, "ttl")
        )
        payload = msgspec.Raw(msgspec.msgpack.encode(body.payload))
        message = BinaryMessage(payload, *msgspec.structs.astuple(fields)[1:])
        schedule = ScheduleBody(
            queue=terms.queue,
            message=message,
            cron=terms.cron,
            every=None if terms.every_us is None else terms.every_us / SECOND,
            tz=terms.tz,
            start=moment_or_none(terms.start_us),
            end=moment_or_none(terms.end_us),
            limit=terms.limit,
            jitter=terms.jitter_us / SECOND,
            missed=terms.missed,
            paused=terms.paused,
        )
        return (yield from call("PUT", _schedule_path(name), _READ_SCHEDULE, schedule))

    def get_schedule(self, name: str) -> Steps[Schedule]:
        return (yield from call("GET", _schedule_path(name), _READ_SCHEDULE))

    def list_schedules(self) -> Steps[list[Schedule]]:
        return (yield from call("GET", "/v1/schedules", _READ_SCHEDULES))

    def delete_schedule(self, name: str) -> Steps[bool]:
        return (yield from call("DELETE", _schedule_path(name), _READ_DELETED, repeat=False))

    def _set_paused(self, name: str, paused: bool) -> Steps[Schedule]:
        return (yield from call("POST", _schedule_path(name, "/pause" if paused else "/resume"), _READ_SCHEDULE))

    def fire_schedule(self, name: str, *, id: str | None = None) -> Steps[Message]:
        message_id = new_ids(1)[0] if id is None else validate.id_text(id)
        message = yield from call("POST", _schedule_path(name, "/fire"), _READ_MESSAGE, FireSchedule(message_id))
        # A duplicate of an id that this call made was stored by an earlier try of the same call.
        return msgspec.structs.replace(message, duplicate=False) if id is None else message
