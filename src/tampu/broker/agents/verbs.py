"""Verbs on agents: list them, run one now, pause and resume one. They belong to the whole store, not to a tenant.

A request is a document. The leader, in whatever process it is, finds it within about a second; a paused agent stays
paused for the next leader.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from tampu.broker import validate
from tampu.broker.agents import stored
from tampu.broker.agents.stored import CONTROL, TENANT, Control, Report
from tampu.broker.audit import Recording
from tampu.broker.core import Read, Steps
from tampu.broker.follower_verbs import FollowerVerbs, statuses
from tampu.broker.journal_readers import FOLLOWER
from tampu.engines.port import Document, Engine, PutDocument
from tampu.model.agents import Agent
from tampu.model.errors import NotFound, VersionConflict
from tampu.model.journal import FollowerStatus
from tampu.model.times import SECOND, moment

_FOLLOWS = "acts on what has happened: it gets each transition of the journal once"
_TRIES = 20


def _moment(us: int) -> datetime | None:
    return moment(us) if us else None


class AgentVerbs(Recording, FollowerVerbs):
    def list_agents(self) -> Steps[list[Agent]]:
        """All agents of the store: maintenance tasks, then followers by name."""
        found: list[Agent] = yield Read(self._all)
        return found

    def get_agent(self, name: str) -> Steps[Agent]:
        """One agent as it is now."""
        validate.name(name, "agent")
        for agent in (yield from self.list_agents()):
            if agent.name == name:
                return agent
        raise NotFound(f"no agent {name}", field="name", hint="list them with: tampu agents list")

    def run_agent(self, name: str) -> Steps[Agent]:
        """Ask the leader to run an agent now. Its ``last_run_at`` is then not before ``asked_at``.

        A follower that waits after an error, or is parked, tries again. A paused agent runs when it is resumed.
        """
        if isinstance(name, str) and name.startswith(FOLLOWER):
            yield from self.resume_follower(name.removeprefix(FOLLOWER))
        now: int = yield Read(lambda engine: engine.now())
        known: dict[str, Report] = yield Read(stored.reports)
        after = known.get(name, Report()).ran_us
        return (
            yield from self._change(
                name, "run", lambda old: msgspec.structs.replace(old, asked_us=max(now, after + 1, old.asked_us + 1))
            )
        )

    def pause_agent(self, name: str) -> Steps[Agent]:
        """Stop an agent in all processes, until it is resumed."""
        return (yield from self._change(name, "pause", lambda old: msgspec.structs.replace(old, paused=True)))

    def resume_agent(self, name: str) -> Steps[Agent]:
        """Let a paused agent go on; a follower that is parked, too."""
        if isinstance(name, str) and name.startswith(FOLLOWER):
            yield from self.resume_follower(name.removeprefix(FOLLOWER))
        return (yield from self._change(name, "resume", lambda old: msgspec.structs.replace(old, paused=False)))

    def _change(self, name: str, verb: str, change: Callable[[Control], Control]) -> Steps[Agent]:
        yield from self.get_agent(name)
        for _ in range(_TRIES):
            document: Document | None = yield Read(lambda engine: engine.document(CONTROL, TENANT, name))
            old = Control() if document is None else stored.read_control(document.value)
            new = change(old)
            if new == old:
                break
            version = 0 if document is None else document.version
            call = PutDocument(CONTROL, TENANT, name, msgspec.json.encode(new), version)
            try:
                yield from self.recorded([call], f"agent.{verb}", name, old, new)
            except VersionConflict:
                continue
            break
        else:
            raise VersionConflict(f"agent {name} keeps changing", hint="try again")
        return (yield from self.get_agent(name))

    def _all(self, engine: Engine) -> list[Agent]:
        controls, known = stored.controls(engine), stored.reports(engine)
        maintenance = self.core.maintenance
        if maintenance is not None and maintenance.leads:  # it knows what is not stored yet
            known |= maintenance.reports()
        due = engine.next_due()
        late = 0.0 if due is None else max(0, engine.now() - due) / SECOND
        leader = max(known.values(), key=lambda report: report.ran_us, default=Report()).leader or None
        none, nothing = Control(), Report()
        return [
            *(_task(t, controls.get(t.name, none), known.get(t.name, nothing), late) for t in stored.TASKS),
            *(_follower(one, controls.get(FOLLOWER + one.name, none), leader) for one in statuses(engine)),
        ]


def _task(task: stored.Task, control: Control, report: Report, late: float) -> Agent:
    return Agent(
        name=task.name,
        kind="task",
        role=task.role,
        schedule=task.schedule,
        status="paused" if control.paused else "active",
        leader=report.leader or None,
        last_run_at=_moment(report.ran_us),
        done=report.done,
        late=late if task.name == stored.EXPIRY else None,
        error=report.error,
        error_at=_moment(report.error_us),
        asked_at=_moment(control.asked_us),
    )


def _follower(one: FollowerStatus, control: Control, leader: str | None) -> Agent:
    return Agent(
        name=FOLLOWER + one.name,
        kind="follower",
        role=_FOLLOWS,
        schedule="when the journal grows",
        status="paused" if control.paused else one.status,
        leader=leader,
        last_run_at=one.moved_at,
        done=one.handled,
        lag=one.behind,
        error=one.error,
        asked_at=_moment(control.asked_us),
    )
