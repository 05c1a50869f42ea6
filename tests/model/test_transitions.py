"""The transition table is what the documents say; that engines keep to it, the runs beside the model show."""

from __future__ import annotations

import re
from pathlib import Path

from tampu.model import transitions
from tampu.model.states import FINAL, LIVE, TERMINAL, WAITING, State, has_ended

DOCS = Path(__file__).parents[2] / "docs" / "reference"
_NAMES = re.compile(r"`(\w+)`")


def table(page: str, columns: str) -> list[list[str]]:
    """The cells of a table of a page, by its first line."""
    _, _, text = (DOCS / page).read_text().partition(columns)
    rows = [line.strip("| ").split(" | ") for line in text.partition("\n\n")[0].splitlines()]
    return [row for row in rows[2:] if len(row) > 1]


def states(cell: str) -> set[State | None]:
    if not cell.strip("\u2013 ") or "removed" in cell:
        return {None}
    return {State(name) for name in _NAMES.findall(cell) if name in set(State)}


def test_every_state_is_live_or_terminal() -> None:
    assert {*LIVE} | {*TERMINAL} == set(State)
    assert not {*LIVE} & {*TERMINAL}
    assert {*WAITING} == {*LIVE} - {State.LEASED}
    assert {*FINAL} == {*TERMINAL} - {State.DEAD}
    assert [state for state in (*State, None) if has_ended(state)] == [*TERMINAL, None]


def test_the_page_of_states_shows_the_table() -> None:
    shown = set()
    for before, by, after, *_ in table("states.md", "| from | by | to | attempts |"):
        verb = _NAMES.findall(by)[0]
        shown |= {(verb, one, other) for one in states(before) for other in states(after)}
    assert shown == {(m.verb, one, other) for m in transitions.TABLE for one in m.before for other in m.after}


def test_the_page_of_the_journal_shows_where_each_verb_leads() -> None:
    shown = {
        _NAMES.findall(verb)[0]: states(after) for verb, after in table("journal.md", "| verb | the state after it |")
    }
    assert shown == {verb: transitions.after(verb) for verb in transitions.VERBS}


def test_nothing_leads_out_of_a_final_state_but_its_removal() -> None:
    assert {m.verb for m in transitions.TABLE for state in m.before if state in FINAL} == {"purge"}


def test_verbs_by_what_they_do_to_a_delivery() -> None:
    assert {"replace", "ask_cancel"} == transitions.STILL
    assert {"ack", "nack", "reject", "release", "reap", "cancel"} == transitions.SETTLING
