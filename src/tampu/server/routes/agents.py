"""Agents: maintenance tasks and followers. They work for all tenants, so they are only for keys of all tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tampu.broker.agents.verbs import AgentVerbs
from tampu.model.agents import Agent
from tampu.model.errors import Forbidden
from tampu.model.journal import FollowerStatus
from tampu.server.auth.grants import Caller
from tampu.server.http.openapi import doc
from tampu.server.http.request import HttpRequest
from tampu.server.routes.common import CurrentCaller, CurrentRequest, answer
from tampu.wire import bodies

router = APIRouter(prefix="/v1/agents", tags=["agents"])
followers = APIRouter(prefix="/v1/followers", tags=["followers"])
Name = Annotated[str, Path(description="Its name")]


async def _verbs(request: HttpRequest, caller: Caller, permission: str) -> AgentVerbs:
    caller.need_everywhere(permission)
    if not await request.server.of_all_tenants(caller):
        raise Forbidden("agents belong to the whole store", hint="use a key that is valid for all tenants")
    return request.verbs


@router.get("", operation_id="list_agents", **doc(bodies.AgentsView))
async def list_agents(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Maintenance tasks and followers: what each does, when it last did, and why one does not go on."""
    verbs = await _verbs(request, caller, "view")
    return answer(request, bodies.AgentsView(await request.drive(verbs.list_agents())))


@router.get("/{name}", operation_id="get_agent", **doc(Agent, more=(404,)))
async def get_agent(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """One agent as it is now."""
    verbs = await _verbs(request, caller, "view")
    return answer(request, await request.drive(verbs.get_agent(name)))


@router.post("/{name}/run", operation_id="run_agent", **doc(Agent, more=(404, 409, 507)))
async def run_agent(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Ask the leader to run an agent now. It has run when last_run_at is not before asked_at."""
    verbs = await _verbs(request, caller, "admin")
    return answer(request, await request.drive(verbs.run_agent(name)))


@router.post("/{name}/pause", operation_id="pause_agent", **doc(Agent, more=(404, 409, 507)))
async def pause_agent(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Stop an agent in all processes, until it is resumed."""
    verbs = await _verbs(request, caller, "admin")
    return answer(request, await request.drive(verbs.pause_agent(name)))


@router.post("/{name}/resume", operation_id="resume_agent", **doc(Agent, more=(404, 409, 507)))
async def resume_agent(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Let a paused agent, or a follower that is parked, go on."""
    verbs = await _verbs(request, caller, "admin")
    return answer(request, await request.drive(verbs.resume_agent(name)))


@followers.get("", operation_id="list_followers", **doc(bodies.FollowersView))
async def list_followers(request: CurrentRequest, caller: CurrentCaller) -> Response:
    """All followers of the store: how far each is behind the journal, and why one does not go on."""
    verbs = await _verbs(request, caller, "view")
    return answer(request, bodies.FollowersView(await request.drive(verbs.list_followers())))


@followers.post("/{name}/resume", operation_id="resume_follower", **doc(FollowerStatus, more=(404, 507)))
async def resume_follower(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Let a follower that is parked, or waits after an error, go on from where it is."""
    verbs = await _verbs(request, caller, "operate")
    return answer(request, await request.drive(verbs.resume_follower(name)))


@followers.delete("/{name}", operation_id="remove_follower", **doc(bodies.Deleted, more=(507,)))
async def remove_follower(name: Name, request: CurrentRequest, caller: CurrentCaller) -> Response:
    """Forget the position of a follower, so that retention does not wait for it. A registered one begins again at the
    end of the journal."""
    verbs = await _verbs(request, caller, "operate")
    return answer(request, bodies.Deleted(await request.drive(verbs.remove_follower(name))))
