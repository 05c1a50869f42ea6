"""`tampu followers`: list, resume and remove followers of the journal."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

import tampu
from tampu.cli import output
from tampu.cli.app import command, group
from tampu.cli.output import count, text, word
from tampu.cli.session import Session

_PANEL = "Manage"
followers = group("followers", _PANEL, "Followers of the journal: list, resume, remove")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the follower")]


@command("list", _PANEL, of=followers)
def list_followers(session: Session) -> None:
    """List all followers of the store: how far each is behind, and why one does not go on."""
    with session.open() as store:
        found = store.followers.list()
    rows = (
        [
            one.name, word(one.status), count(one.behind), output.ago(one.moved_at), count(one.attempts),
            output.ago(one.retry_at), text(one.error, "red"),
        ]
        for one in found
    )  # fmt: skip
    columns = ["follower", "status", "behind", "moved", "failures", "next try", "error"]
    document = {"followers": [msgspec.structs.asdict(one) for one in found]}
    session.out.rows(document, columns, rows, fold=["error"], right=["behind", "failures"])


@command("resume", _PANEL, of=followers)
def resume(session: Session, name: Name) -> None:
    """Let a parked follower go on from where it is."""
    with session.open() as store:
        resumed = store.followers.resume(name)
    line = f"{name} is {resumed.status}, {resumed.behind:,} transitions behind"
    session.out.answer(msgspec.structs.asdict(resumed), line, "green")


@command("remove", _PANEL, of=followers)
def remove(session: Session, name: Name) -> None:
    """Forget the position of a follower, so that the journal is not kept for it.

    If its handler is still registered, it begins again at the end of the journal.
    """
    with session.open() as store:
        if not store.followers.remove(name):
            raise tampu.NotFound(f"no follower {name}", field="name", hint="see tampu followers list")
    session.out.answer({"name": name, "deleted": True}, f"{name} removed")
