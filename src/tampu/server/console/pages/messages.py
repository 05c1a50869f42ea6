"""Messages, newest first, by what they are; in steps that read a bounded part of the store."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Response

from tampu.broker.admin.filters import Where
from tampu.engines.port import Engine
from tampu.model.errors import InvalidMessage
from tampu.model.journal import Position, Transition
from tampu.model.message import Message, State
from tampu.server.auth.grants import Caller
from tampu.server.console import journal_pages
from tampu.server.console.page import Page, View
from tampu.server.console.parts import address, labels_field, moment_field
from tampu.server.events import positions

page = Page("messages", "Messages", group="1")
_LISTED = 50
_MOST_READ = 500
"""Messages that are read for one page."""
_MOST_STEPS = 20
"""How often one page goes on further back in the journal."""
_FILTERS = ("queue", "state", "type", "key", "label", "error", "worker", "correlation", "since", "until")


class Wanted(msgspec.Struct, frozen=True):
    """Which messages."""

    queue: str | None
    state: State | None
    type: str | None
    worker: str | None
    where: Where
    since_us: int
    until_us: int

    @property
    def by_birth(self) -> bool:
        """True if messages are found by their publish; False: by how they came into their state."""
        return self.state is None

    def takes(self, transition: Transition) -> bool:
        """True if the message may be wanted, as far as the journal knows."""
        if self.queue not in (None, transition.queue) or not self.since_us <= transition.at_us < self.until_us:
            return False
        if self.state is not None:
            return transition.state == self.state
        return transition.verb in ("publish", "adopt") and self.type in (None, transition.type or self.type)

    def matches(self, message: Message) -> bool:
        if self.state not in (None, message.state) or self.queue not in (None, message.queue):
            return False
        if self.worker is not None and message.worker != self.worker:
            workers = {failure.worker for failure in message.failures}
            if self.worker not in workers:
                return False
        return self.where.matches(message)


def _wanted(query: dict[str, str]) -> Wanted:
    state = query.get("state")
    if state is not None and state not in {str(one) for one in State}:
        raise InvalidMessage(f"{state!r:.40} is not a state", field="state", hint=f"states are {', '.join(State)}")
    since, until = moment_field(query, "since"), moment_field(query, "until")
    where = Where.of(
        {
            name: value
            for name, value in {
                "type": query.get("type"), "key": query.get("key"), "error": query.get("error"),
                "correlation_id": query.get("correlation"), "labels": labels_field(query, "label"),
            }.items()
            if value
        }
    )  # fmt: skip
    return Wanted(
        query.get("queue"),
        None if state is None else State(state),
        query.get("type"),
        query.get("worker"),
        where,
        0 if since is None else int(since.timestamp() * 1_000_000),
        1 << 62 if until is None else int(until.timestamp() * 1_000_000),
    )


@page.show("/messages")
async def messages(view: View) -> Response:
    wanted = _wanted(view.query)
    if wanted.queue is not None:
        view.need("view", wanted.queue)
    before = positions.read(view.query["before"]) if "before" in view.query else None
    if wanted.where.correlation_id is not None:
        found: list[Message] = await view.read(
            view.engine.correlated, view.caller.tenant, wanted.where.correlation_id, _MOST_READ
        )
        shown = [one for one in reversed(found) if view.may("view", one.queue) and wanted.matches(one)]
        rest: Position | None = None
    else:
        shown, rest = await view.read(newest, view.engine, view.caller, wanted, before)
    await view.request.charge(view.caller, len(shown) // 10)
    given = {name: view.query[name] for name in _FILTERS if name in view.query}
    return await view.html(
        "messages.html",
        messages=shown,
        given=given,
        tabs=[(state, address("messages", **{**given, "state": state})) for state in (None, *State)],
        first=before is None,
        more=None if rest is None else address("messages", **given, before=positions.write(rest)),
    )


def newest(
    engine: Engine, caller: Caller, wanted: Wanted, before: Position | None
) -> tuple[list[Message], Position | None]:
    """(messages, where to go on). A message is where it came into its state, or where it was published."""
    found: dict[str, Message] = {}
    read = 0
    cursor = before

    def takes(transition: Transition) -> bool:
        return wanted.takes(transition) and caller.may("view", transition.queue)

    for _ in range(_MOST_STEPS):
        part, cursor = journal_pages.backwards(engine, caller.tenant, cursor, wanted.queue, takes, _LISTED - len(found))
        for transition in part:
            read += 1
            if transition.id in found:
                continue
            message: Any = engine.get(caller.tenant, transition.id)
            if message is not None and caller.may("view", message.queue) and wanted.matches(message):
                found[message.id] = message
        if cursor is None or len(found) >= _LISTED or read >= _MOST_READ or not part:
            return list(found.values()), cursor
        if part[-1].at_us < wanted.since_us:
            return list(found.values()), None
    return list(found.values()), cursor
