"""`tampu agents`: list, show, run, pause and resume maintenance tasks and followers."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

import tampu
from tampu.cli import output, parse
from tampu.cli.app import command, group, option
from tampu.cli.output import count, text, word
from tampu.cli.session import Session

_PANEL = "Manage"
_LOOK_SECONDS = 0.2
agents = group("agents", _PANEL, "Maintenance tasks and followers: list, run, pause, resume")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent, such as expiry")]


@command("list", _PANEL, of=agents)
def list_agents(session: Session) -> None:
    """List all agents: what each does, when it last did something, how far a follower is behind."""
    with session.open() as store:
        found = store.agents.list()
    rows = (
        [
            one.name, word(one.status), output.ago(one.last_run_at), count(one.done),
            "" if one.lag is None else count(one.lag), one.leader or "", text(one.error, "red"),
        ]
        for one in found
    )  # fmt: skip
    columns = ["agent", "status", "last run", "done", "behind", "leader", "error"]
    document = {"agents": [msgspec.to_builtins(one) for one in found]}
    session.out.rows(document, columns, rows, fold=["error"], right=["done", "behind"])


@command("show", _PANEL, of=agents)
def show(session: Session, name: Name) -> None:
    """Show all that is known of one agent."""
    with session.open() as store:
        found = msgspec.to_builtins(store.agents.get(name))
    if session.json:
        session.out.document(found)
        return
    lines = (f"{field.replace('_', ' ')}: {value}" for field, value in found.items() if value is not None)
    session.out.show(text("\n".join(lines)))


@command("run", _PANEL, of=agents)
def run(
    session: Session,
    name: Name,
    wait: Annotated[str, option("--wait", "How long to wait until it has run", metavar="TIME")] = "10s",
) -> None:
    """Ask the leader to run an agent now, and wait until it has."""
    end = time.monotonic() + parse.duration(wait, "wait")
    with session.open() as store:
        found = asked = store.agents.run(name)
        while not _has_run(found, asked) and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
            found = store.agents.get(name)
    if _has_run(found, asked):
        line, color = f"{name} has run", "green"
    elif found.status == "paused":
        line, color = f"{name} is paused: it runs when it is resumed, with tampu agents resume {name}", "yellow"
    else:
        line, color = f"{name} was asked to run; it does as soon as a process with maintenance is there", "yellow"
    session.out.answer(msgspec.to_builtins(found), line, color)


def _has_run(found: tampu.Agent, asked: tampu.Agent) -> bool:
    if found.kind == "follower":
        return found.status == "active" and not found.lag
    return found.last_run_at is not None and asked.asked_at is not None and found.last_run_at >= asked.asked_at


@command("pause", _PANEL, of=agents)
def pause(session: Session, name: Name) -> None:
    """Stop an agent in all processes, until it is resumed."""
    with session.open() as store:
        found = store.agents.pause(name)
    session.out.answer(msgspec.to_builtins(found), f"{name} is paused", "yellow")


@command("resume", _PANEL, of=agents)
def resume(session: Session, name: Name) -> None:
    """Let a paused agent, or a parked follower, go on."""
    with session.open() as store:
        found = store.agents.resume(name)
    session.out.answer(msgspec.to_builtins(found), f"{name} is {found.status}", "green")
