"""`config`: shows the settings of a queue and where each comes from, and changes them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import tampu
from tampu.cli import documents, output, parse, print_outcomes
from tampu.cli.app import command, option, queue_names
from tampu.cli.output import text
from tampu.cli.session import Session
from tampu.model.config import DEFAULTS, DURATIONS, is_pattern

_SOURCES = {"*": "all queues (*)"}
_OFF_AT_ZERO = {
    "ageing": "off",
    "ttl": "never",
    "max_depth": "no limit",
    "group_concurrency": "no limit",
    "group_rate": "no limit",
    "max_in_flight": "no limit",
    "rate": "no limit",
}


@command("config", "Manage")
def config(
    session: Session,
    queue: Annotated[
        str,
        typer.Argument(metavar="QUEUE", help="The queue, a scope (shop.*), or '*'", autocompletion=queue_names),
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE…", help="Settings: lease=2m ordering=priority ttl=null")
    ] = None,
    reset: Annotated[bool, option("--reset", "Remove all settings: use the defaults again")] = False,
) -> None:
    """Show the settings of a queue, or change them. Changing creates the queue if it does not exist.

    Durations take units (lease=2m); null means inherited. A backoff is exponential:base=1s,cap=5m,jitter=full
    (or linear, fixed), or a list of delays: backoff=1,5,30.
    """
    wanted = parse.settings(changes or [])
    if reset and wanted:
        raise tampu.InvalidConfig("--reset takes no settings", field="reset", hint="reset first, then set them")

    def act(store: tampu.Store) -> None:
        store.queues.put(queue, **wanted)

    with session.open_or_create(act) if wanted else session.open() as store:
        if not is_pattern(queue) and not wanted and queue not in store.queues.list():
            raise tampu.NotFound(
                f"no queue {queue}",
                field="queue",
                hint="set a value to create it; '*' has those of all queues",
            )
        made = (
            bool(wanted) and not is_pattern(queue) and print_outcomes.status_of(store, queue) == print_outcomes.MISSING
        )
        if reset:
            store.queues.reset(queue)
        elif wanted:
            act(store)
        effective = documents.config(store.queues.get(queue))
        own = documents.config(store.queues.get(queue, inherited=False))
        sources = store.queues.sources(queue)
    if made:
        session.out.note(f"created queue {queue}; remove it with: {session.command_line('remove', queue)}")
    if session.json:
        session.out.document({"queue": queue, "effective": effective, "own": own, "sources": sources})
        return
    rows = []
    for name, value in effective.items():
        source = sources[name]
        style = "bold" if source == queue else "dim" if source == "built in" else ""
        rows.append([text(cell, style) for cell in (name, _value(name, value), _SOURCES.get(source, source))])
    title = f"settings of {'all queues' if queue == DEFAULTS else queue}"
    session.out.show(output.table(("setting", "value", "from"), rows, fold=("value",), title=title))


def _value(name: str, value: Any) -> str:
    if not value and name in _OFF_AT_ZERO:
        return _OFF_AT_ZERO[name]
    if name in DURATIONS:
        return output.span(value)
    if name == "backoff":
        return _backoff(value)
    if name == "max_payload":
        return f"{value:,} bytes"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _backoff(value: dict[str, Any]) -> str:
    if value["kind"] == "list":
        return ", ".join(output.span(delay) for delay in value["delays"])
    top = "" if value["kind"] == "fixed" else f", at most {output.span(value['cap'])}"
    return f"{value['kind']} from {output.span(value['base'])}{top}, jitter {value['jitter']}"
