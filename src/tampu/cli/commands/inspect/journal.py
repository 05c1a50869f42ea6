"""`journal`: the last transitions, those after a position, or new ones as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import tampu
from tampu.cli import documents, journal_positions, output
from tampu.cli.app import command, option, queue_names
from tampu.cli.output import text, word
from tampu.cli.session import Session
from tampu.cli.wakeup import Wakeup

if TYPE_CHECKING:
    from rich.text import Text

_LOOK_SECONDS = 0.2
_WIDE = 115
_COLUMNS = ("offset", "at", "queue", "verb", "state", "id", "attempt", "type", "worker", "detail")


@command("journal", "Inspect")
def journal(
    session: Session,
    after: Annotated[
        str | None, option("--after", "Start after this position, as printed; 0 is the beginning", metavar="POSITION")
    ] = None,
    limit: Annotated[int, option("--limit", "-n", "Maximum entries (of --queue, if given)", min=1, max=100_000)] = 50,
    follow: Annotated[bool, option("--follow", "-f", "Print new entries until Ctrl-C")] = False,
    queue: Annotated[
        str | None, option("--queue", "Only this queue", metavar="NAME", autocompletion=queue_names)
    ] = None,
) -> None:
    """Show the transitions of messages, in order. With --json --follow, one JSON document per line."""
    with session.open() as store:
        if after is None:
            page = journal_positions.last(store, limit, queue)
        else:
            page = journal_positions.page_after(store, journal_positions.read(after), limit, queue)
        if follow:
            _follow(session, store, page, limit, queue)
            return
    document = {
        "transitions": [documents.transition(t) for t in page.transitions],
        "position": journal_positions.write(page.position),
        "latest": journal_positions.write(page.latest),
    }
    fold, right = ("type", "worker", "detail"), ("offset", "attempt")
    rows = map(_row, page.transitions)
    session.out.rows(document, _columns(), rows, "no journal entries found", fold=fold, right=right)
    if after is not None and journal_positions.behind(page):
        words = ["journal", "--after", journal_positions.write(page.position), "--limit", str(limit)]
        more = session.command_line(*words, *(["--queue", queue] if queue else []))
        session.out.note(f"more: {more}")


def _follow(session: Session, store: tampu.Store, page: tampu.JournalPage, limit: int, queue: str | None) -> None:
    wakeup = Wakeup(store)
    while True:
        for t in page.transitions:
            if queue in (None, t.queue):
                if session.json:
                    session.out.document(documents.transition(t))
                else:
                    session.out.show(line(t))
        if not page.transitions:
            wakeup.wait(_LOOK_SECONDS)
        page = store.journal(after=page.position, limit=limit)


def line(t: tampu.Transition) -> Text:
    """A transition in one line, for continuous output."""
    made = text(f"{t.at.astimezone():%H:%M:%S} ", "dim") + text(f"{t.queue:<12} {t.verb:<10} ")
    made += word(f"{t.state or 'removed'}") + text(" " * max(1, 10 - len(t.state or "removed")))
    made += text(f"{t.id} ", "dim") + text(" ".join(part for part in (t.type, t.worker, t.detail) if part))
    return made


def _row(t: tampu.Transition) -> list[Any]:
    at, state = f"{t.at.astimezone():%m-%d %H:%M:%S}", word(t.state or "removed")
    cells = [t.offset, at, text(t.queue, "bold"), t.verb, state, t.id, t.attempt, t.type, t.worker, t.detail]
    return [cell for name, cell in zip(_COLUMNS, cells, strict=True) if name in _columns()]


def _columns() -> list[str]:
    return [name for name in _COLUMNS if output.width() >= _WIDE or name not in ("offset", "attempt", "worker")]
