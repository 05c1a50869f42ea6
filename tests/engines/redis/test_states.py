"""The Lua scripts cannot import the states and the transition table, so this compares what they say with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tampu.engines.redis
from tampu.engines.encoding import CODE
from tampu.model import transitions
from tampu.model.states import FINAL, LIVE, WAITING, State

SCRIPTS = Path(tampu.engines.redis.__file__).parent / "lua"
TEXTS = {str(path.relative_to(SCRIPTS)): path.read_text() for path in sorted(SCRIPTS.rglob("*.lua"))}
CANCELLABLE = {before for move in transitions.TABLE if move.verb == "cancel" for before in move.before}
LISTS = {
    ("sweep/trim.lua", "done cancelled expired"): set(FINAL),
    ("common/runs.lua", "delayed leased held"): {*LIVE} - {State.READY},  # ready ones are counted apart
    ("snapshot/snapshot_changes.lua", "delayed leased held dead"): {*LIVE, State.DEAD} - {State.READY},
}
CHOICES = {
    ("admin/cancel.lua", "READY DELAYED HELD"): CANCELLABLE - {State.LEASED},
    ("admin/purge.lua", "READY DELAYED HELD"): set(WAITING),
    ("admin/remove.lua", "READY DELAYED HELD"): set(WAITING),
    ("admin/undo_replay.lua", "READY DELAYED HELD"): set(WAITING),
    ("unit/unit_check.lua", "READY DELAYED HELD"): CANCELLABLE - {State.LEASED},
    ("unit/unit_check.lua", "LEASED CANCELLED"): {State.LEASED, State.CANCELLED},
}
_LIST = re.compile(r"ipairs\(\{ ('\w+'(?:, '\w+')*) \}\)")
_CHOICE = re.compile(r"(?:(?:x\[1\]|state) [~=]= [A-Z]+(?: or | and )?){2,}")
_NOTED = re.compile(r"\b(?:note|new_record)\('(\w+)', ([A-Z]+)\b")


def found(pattern: re.Pattern[str], word: str) -> dict[tuple[str, str], set[State]]:
    """All places of scripts that name several states, and no other words."""
    named = {
        (file, " ".join(re.findall(word, match[0]))) for file, text in TEXTS.items() for match in pattern.finditer(text)
    }
    return {
        (file, words): {State(one.lower()) for one in words.split()}
        for file, words in named
        if {one.lower() for one in words.split()} <= {*State}
    }


def test_the_states_have_the_same_numbers_and_indexes_in_scripts() -> None:
    text = TEXTS["common/moves.lua"]
    names, numbers = re.findall(r"^local (READY, .*) = (0, .*)$", text, re.MULTILINE)[0]
    pairs = zip(names.split(", "), numbers.split(", "), strict=True)
    assert {State(name.lower()): int(number) for name, number in pairs} == CODE
    (indexes,) = re.findall(r"^local INDEX = \{ \[0\] = (.*) \}$", text, re.MULTILINE)
    assert re.findall(r"'(\w+)'", indexes) == [*State]


def test_lists_of_states_in_scripts_are_those_of_the_model() -> None:
    assert found(_LIST, r"'(\w+)'") == LISTS


def test_scripts_that_choose_by_state_choose_as_the_model_does() -> None:
    assert found(_CHOICE, r"[~=]= ([A-Z]+)") == CHOICES


@pytest.mark.parametrize("file", [file for file, text in TEXTS.items() if _NOTED.search(text)])
def test_what_a_script_writes_to_the_journal_is_in_the_transition_table(file: str) -> None:
    for verb, state in _NOTED.findall(TEXTS[file]):
        assert State(state.lower()) in transitions.after(verb), (verb, state)
