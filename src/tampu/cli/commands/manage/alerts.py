"""`tampu alert`: put, list, show and delete alerts, and which of them fire."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command, group, option
from tampu.cli.definitions import Name, add_commands
from tampu.cli.session import Session
from tampu.model.definitions import Measure

_PANEL = "Policies"
alert = group("alert", _PANEL, "When to warn: dead letters, old messages, stuck leases, failures, slow followers")


@command("put", _PANEL, of=alert)
def put(
    session: Session,
    name: Name,
    measure: Annotated[Measure, typer.Argument(metavar="MEASURE", help="dead, oldest, stuck, failed or lag")],
    above: Annotated[float, option("--above", "Fire when the measure is more than this")],
    clear: Annotated[float | None, option("--clear", "End when it is at most this; default: as --above")] = None,
    lasting: Annotated[str, option("--lasting", "For how long it must be above", metavar="DURATION")] = "0",
    within: Annotated[str, option("--within", "The time that dead and failed look at", metavar="DURATION")] = "1h",
    queue: Annotated[list[str] | None, option("--queue", "Pattern of queues; may be repeated")] = None,
    notify: Annotated[str | None, option("--notify", "A queue that gets a message", metavar="QUEUE")] = None,
    webhook: Annotated[str | None, option("--webhook", "A url that gets a POST", metavar="URL")] = None,
    paused: Annotated[bool, option("--paused", "Do not evaluate it")] = False,
) -> None:
    """Create an alert, or change the one with this name."""

    def act(store: tampu.Store) -> tampu.Alert:
        return store.alerts.put(
            name, measure=measure, above=above, clear=clear, lasting=lasting, within=within, queues=queue or None,
            notify=notify, webhook=None if webhook is None else {"url": webhook}, paused=paused,
        )  # fmt: skip

    with session.open_or_create(act) as store:
        made = act(store)
    session.out.answer(msgspec.to_builtins(made), f"{made.name} is version {made.version}", "green")


@command("status", _PANEL, of=alert)
def status(session: Session) -> None:
    """List the alerts that fire, each with its queue."""
    with session.open() as store:
        found = store.alerts.status()
    rows = ([one.alert, one.target, output.ago(one.since), f"{one.value:g}"] for one in found)
    document = {"firing": [msgspec.to_builtins(one) for one in found]}
    session.out.rows(document, ["alert", "for", "since", "value"], rows, "no alert fires", right=["value"])


add_commands(
    alert, _PANEL, "alert", "alerts", ["measure", "above", "clear", "queues"],
    lambda one: [
        "paused" if one.paused else one.measure, f"{one.above:g}", "" if one.clear is None else f"{one.clear:g}",
        ", ".join(one.queues) or "*",
    ],
)  # fmt: skip
