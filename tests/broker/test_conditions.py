"""Conditions: what Python answers in place of CEL is what CEL answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.broker import validate
from tampu.broker.policies import cel, conditions, seen
from tampu.broker.policies.conditions import View
from tampu.broker.policies.rules.program import Program
from tampu.broker.publish_steps import Draft
from tampu.broker.settings import resolve
from tampu.model.config import BUILT_IN
from tampu.model.definitions import Action, Changes, Rule
from tampu.model.errors import InvalidConfig
from tampu.model.message import NewMessage

SETTINGS = resolve(BUILT_IN)
TEXTS = st.sampled_from(["", "a", "b", "order", "ä", "\U0001f600", "z&&z", "A"]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\"'\\\r\n"), max_size=4
)
NUMBERS = (
    st.integers(-3, 3)
    | st.integers(-(10**15), 10**15)
    | st.sampled_from([2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**63)])
)
VALUES = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
PAYLOADS = st.recursive(
    VALUES,
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3) | st.lists(inner, max_size=2),
)
PATHS = st.sampled_from(
    ["payload", "payload.a", "payload.b", "payload.a.b", "type", "priority", "queue", "key", "group", "source",
     "labels.a", "headers.b", "correlation_id", "attempts", "size", "error", "nothing"]
)  # fmt: skip
LITERALS = (
    st.integers(-(10**15) + 1, 10**15 - 1).map(str) | st.integers(-3, 3).map(str) | TEXTS.map(lambda text: f"'{text}'")
)
COMPARISONS = st.builds(
    lambda path, how, literal, gap: f"message.{path}{gap}{how}{gap}{literal}",
    PATHS, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), LITERALS, st.sampled_from(["", " "]),
)  # fmt: skip
EXPRESSIONS = st.lists(COMPARISONS, min_size=1, max_size=3).map(" && ".join)
MESSAGES = st.builds(
    NewMessage, payload=PAYLOADS, type=st.sampled_from([None, "a", "order"]), priority=st.integers(-3, 3),
    labels=st.none() | st.dictionaries(st.sampled_from(["a", "b"]), TEXTS, max_size=2),
    headers=st.none() | st.dictionaries(st.sampled_from(["a", "b"]), TEXTS, max_size=2),
    group=st.sampled_from([None, "a"]), source=st.sampled_from([None, "order"]),
)  # fmt: skip


def draft(new: NewMessage) -> Draft:
    return Draft("order", new, validate.item("order", SETTINGS, new), None)


def by_cel(source: str, message: Draft) -> bool | None:
    """None: it has no value."""
    try:
        return cel.compiled(source).is_true(seen.of_draft(message))
    except cel.Failed:
        return None


@given(EXPRESSIONS, MESSAGES)
def test_a_condition_has_the_value_of_its_expression(source: str, new: NewMessage) -> None:
    message = draft(new)
    condition = conditions.condition_of(cel.compiled(source))
    assert condition is not None
    found = condition(View(message))
    if found is not None:
        assert found is by_cel(source, message)


@given(st.lists(COMPARISONS | EXPRESSIONS, min_size=1, max_size=8), MESSAGES)
def test_a_table_of_rules_finds_the_same_first_rule(sources: list[str], new: NewMessage) -> None:
    action = (Action(set=Changes(priority=1)),)
    rules = [Rule(name=str(n), when=source, actions=action) for n, source in enumerate(sources)]
    message = draft(new)
    view = View(message)
    candidates = [one for find, _ in Program(rules).entries for one in find(view)]
    found = [rule for rule, sure in candidates if sure or by_cel(rule.when, message)]
    assert found == [rule for rule in rules if by_cel(rule.when, message)]
    assert all(by_cel(rule.when, message) for rule, sure in candidates if sure)


@pytest.mark.parametrize(
    "source",
    ["message.a == 1.5", "message.a == 1u", "message.a == 01", "message.a == 1 || true", "1 == message.a", "message.a",
     "message.a == 'it\\'s'", "message.a == '''x'''", "message.a == b'x'", "message.a == r'x'", "message.a == 1 &&",
     "message.a == 1 && && message.b == 2", "(message.a == 1)", "message.a == 12345678901234567890", "",
     "message.a == message.b", "message.a in ['x']", "message['a'] == 1", "message.a == 1 ? true : false",
     "message.a == 1e3", "message.a == 0x10", "message.a == -message.b", "message.a == 'x' + 'y'", "! message.a == 1"],
)  # fmt: skip
def test_all_else_is_left_to_cel(source: str) -> None:
    assert conditions.parse(source) is None


@given(
    st.text(max_size=60)
    | st.lists(COMPARISONS | st.sampled_from(["||", "&&", "(", ")", "!", " ", "'"]), max_size=5).map("".join)
)
def test_what_cel_does_not_compile_is_no_condition(source: str) -> None:
    try:
        cel.expression(source, "when")
    except InvalidConfig:
        return
    parsed: Any = conditions.parse(source)
    if parsed is not None:
        assert source.count("message") >= len(parsed)
