"""`tampu webhook`: the secret that signs what rules and alerts send to urls."""

from __future__ import annotations

import sys
from typing import Annotated

import tampu
from tampu.cli import parse
from tampu.cli.app import command, group, option
from tampu.cli.session import Session

_PANEL = "Policies"
_MOST = 1000
webhook = group("webhook", _PANEL, "What rules and alerts send to urls: how it is signed")


@command("secret", _PANEL, of=webhook)
def secret(
    session: Session,
    remove: Annotated[bool, option("--remove", "Do not sign any more")] = False,
    previous_for: Annotated[
        str, option("--previous-for", "The secret until now signs too for this time: 1d", metavar="TIME")
    ] = "0s",
) -> None:
    """Set the secret that signs deliveries, from standard input. It is never shown."""
    overlap = parse.duration(previous_for, "previous-for")
    given = None if remove else sys.stdin.read(_MOST).strip()

    def act(store: tampu.Store) -> bool:
        return store.webhooks.put_secret(given, previous_for=overlap)

    with session.open_or_create(act) as store:
        signed = act(store)
    session.out.answer({"signed": signed}, f"deliveries are {'signed' if signed else 'not signed'}", "green")


@command("status", _PANEL, of=webhook)
def status(session: Session) -> None:
    """Say whether deliveries are signed."""
    with session.open() as store:
        signed = store.webhooks.has_secret()
    session.out.answer({"signed": signed}, f"deliveries are {'signed' if signed else 'not signed'}")
