"""`publish`: one message from an argument, a file or standard input. Many, as JSON lines: see publish_lines.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tampu
from tampu.cli import documents, output, parse, print_outcomes
from tampu.cli.app import QueueName, command, option
from tampu.cli.commands.work import publish_lines
from tampu.cli.session import Session

_WHEN = "When"
_WHO = "Identity"
_EMPTY_HINT = "write null for no value, or --text '' for an empty text"
_TEXT_HINT = "quote it for the shell, such as '{\"a\": 1}'; or send it as text with --text"


Payload = Annotated[str | None, typer.Argument(help="JSON, or - for standard input", show_default=False)]
Text = Annotated[bool, option("--text", "The payload is text, not JSON")]
File = Annotated[str | None, option("--file", "Read the payload from a file", metavar="PATH")]
ContentType = Annotated[
    str | None, option("--content-type", "Send the bytes unchanged, with this type", metavar="TYPE")
]
Type = Annotated[str | None, option("--type", "Type, a dotted name: email.send", metavar="NAME")]
Priority = Annotated[int, option("--priority", "Higher goes first in a priority queue")]
MaxAttempts = Annotated[int | None, option("--max-attempts", "Maximum deliveries")]
Labels = Annotated[list[str] | None, option("--label", "A label; repeatable", metavar="K=V")]
Headers = Annotated[list[str] | None, option("--header", "A header; repeatable", metavar="K=V")]


def read_bytes(source: str) -> bytes:
    """A file's bytes, or standard input's for ``-``."""
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise parse.unreadable(source, error) from None


def read_payload(
    given: str | None, file: str | None, *, text: bool, content_type: str | None
) -> tuple[Any, str | None]:
    """(payload, content type) of the options."""
    if (given is None) == (file is None):
        raise tampu.InvalidMessage(
            "give one payload", field="payload", hint="JSON as an argument, - for standard input, or --file PATH"
        )
    raw: str | bytes = read_bytes(file or "-") if given is None or given == "-" else given
    if text:
        try:
            return (raw.decode() if isinstance(raw, bytes) else raw), content_type or "text/plain"
        except UnicodeDecodeError:
            raise tampu.InvalidMessage(
                "the payload is not UTF-8 text", field="payload", hint="send bytes with --content-type"
            ) from None
    if content_type is not None and content_type != "application/json":
        return (raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogateescape")), content_type
    if not raw.strip():
        raise tampu.InvalidMessage("the payload is empty", field="payload", hint=_EMPTY_HINT)
    return parse.json_value(raw, "payload", _TEXT_HINT), None


@command("publish", "Work")
def publish(
    session: Session,
    queue: QueueName,
    payload: Payload = None,
    text: Text = False,
    file: File = None,
    lines_: Annotated[
        bool, option("--lines", "Many messages: each line of the file or standard input is a JSON payload")
    ] = False,
    fields: Annotated[
        bool, option("--fields", 'With --lines: each line is {"payload": …, "type": …, "priority": …, …}')
    ] = False,
    content_type: ContentType = None,
    type: Type = None,
    priority: Priority = 0,
    max_attempts: MaxAttempts = None,
    label: Labels = None,
    header: Headers = None,
    delay: Annotated[str | None, option("--delay", "Deliver after 30s, 5m, 1h30m", metavar="TIME", panel=_WHEN)] = None,
    run_at: Annotated[str | None, option("--run-at", "Deliver at this time", metavar="ISO", panel=_WHEN)] = None,
    ttl: Annotated[str | None, option("--ttl", "Expire if it waits longer", metavar="TIME", panel=_WHEN)] = None,
    deadline: Annotated[
        str | None, option("--deadline", "Due time; orders a deadline queue", metavar="ISO", panel=_WHEN)
    ] = None,
    review: Annotated[
        str | None, option("--review", "Hold until a person has decided, by this pattern", metavar="NAME", panel=_WHEN)
    ] = None,
    hold: Annotated[str | None, option("--hold", "Hold until tampu free", metavar="REASON", panel=_WHEN)] = None,
    key: Annotated[str | None, option("--key", "Replace the waiting message that has this key", panel=_WHO)] = None,
    idempotency_key: Annotated[
        str | None, option("--idempotency-key", "Publishing again returns the first message", panel=_WHO)
    ] = None,
    group: Annotated[str | None, option("--group", "Group, for order or limits within it", panel=_WHO)] = None,
    correlation_id: Annotated[str | None, option("--correlation-id", "Shared by related messages", panel=_WHO)] = None,
    causation_id: Annotated[str | None, option("--causation-id", "The message that caused it", panel=_WHO)] = None,
    parent_id: Annotated[str | None, option("--parent-id", "The parent message", panel=_WHO)] = None,
    source: Annotated[str | None, option("--source", "Who published it", panel=_WHO)] = None,
    id: Annotated[str | None, option("--id", "Your own id, a UUID", panel=_WHO)] = None,
) -> None:
    """Publish a message, or many with --lines. Creates the store's file if it does not exist."""
    options: dict[str, Any] = {
        "type": type,
        "priority": priority,
        "max_attempts": max_attempts,
        "labels": parse.pairs(label, "label"),
        "headers": parse.pairs(header, "header"),
        "delay": parse.optional_duration(delay, "delay"),
        "run_at": parse.moment(run_at, "run_at"),
        "ttl": parse.optional_duration(ttl, "ttl"),
        "deadline": parse.moment(deadline, "deadline"),
        "hold": hold,
        "review": review,
        "key": key,
        "idempotency_key": idempotency_key,
        "group": group,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "parent_id": parent_id,
        "source": source,
        "id": id,
    }
    if lines_:
        _refuse_with_lines(payload, key=key, idempotency_key=idempotency_key, id=id, content_type=content_type)
        publish_lines.publish(session, queue, file or "-", options, text=text, fields=fields)
        return
    if fields:
        raise tampu.InvalidMessage("--fields needs --lines", field="fields")
    value, kind = read_payload(payload, file, text=text, content_type=content_type)

    def act(store: tampu.Store) -> tampu.Message:
        return store.publish(queue, value, content_type=kind, **options)

    with session.open_or_create(act) as store:
        like = "" if session.json else print_outcomes.similar(store, queue)
        message = act(store)
    when = f", due {output.ago(message.run_at)}" if message.run_at else ""
    held = f" ({message.reason})" if message.reason else ""
    line = f"{message.id}  {message.queue}: {message.state}{held}{when}"
    session.out.answer(documents.message(message), line)
    if like:
        session.out.note(f"queue {queue} is new{like}")
    if message.duplicate:
        session.out.note("not published again: a message with this key, idempotency key or id exists")


def _refuse_with_lines(payload: str | None, **single: str | None) -> None:
    if payload not in (None, "-"):
        raise tampu.InvalidMessage("--lines reads --file PATH or standard input, not an argument", field="payload")
    for name, value in single.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            raise tampu.InvalidMessage(f"{option} is for one message, not for --lines", field=name, hint="use --fields")
