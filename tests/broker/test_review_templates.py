"""Templates and forms of reviews: whatever is in them, they end soon, and are text or are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tampu
from tampu.broker.policies.reviews import forms, patterns, templates
from tampu.model.reviews import ReviewField

PARTS = st.sampled_from(
    ["{{", "}}", "{", "}", "message", "parameters", ".", "payload", "[0]", "[", "]", '["a b"]', "__class__", "(", ")",
     " ", "|", "%", "<script>", "\x1b[2J", "\u202e", "0", "-1", "x"]
)  # fmt: skip
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)

FIELDS = st.sampled_from(
    ["context", "options", "fields", "roles", "deadline", "remind", "escalate", "approvals", "parameters", "pattern",
     "inline", "queues"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=30).map("".join) | st.text(max_size=200), JSON)
def test_any_template_is_refused_or_text_without_control_characters(template: str, payload: Any) -> None:
    try:
        shown = templates.rendered(template, {"message": {"payload": payload}, "parameters": {}})
    except tampu.InvalidConfig:
        return
    assert len(shown) <= templates.MOST_CHARACTERS + 100 * 2001
    assert not set(shown) & {"\x1b", "\x00", "\x07", "\u202e", "\r"}
    shown.encode()


def test_a_template_finds_values_and_nothing_else() -> None:
    payload = {"a b": 1, "rows": [{"price": 2.5}], "evil": "{{ message.secret }}<b>", "none": None, "deep": {"x": [1]}}
    values = {"message": {"payload": payload, "secret": "s"}, "parameters": {"limit": 7}}
    for template, shown in (
        ("{{ message.payload.rows[0].price }} of {{parameters.limit}}", "2.5 of 7"),
        ('{{ message.payload["a b"] }}', "1"),
        ("{{ message.payload.evil }}", "{{ message.secret }}<b>"),
        ("{{ message.payload.deep }}", '{"x":[1]}'),
        ("{{ message.payload.none }}{{ message.payload.rows[9] }}{{ message.payload.rows.price }}", "———"),
        ("{{ message.payload.rows.__class__ }}{{ message.__class__ }}", "——"),
        ("a { b } c", "a { b } c"),
    ):
        assert templates.rendered(template, values) == shown
    for bad in (
        "{{ secret }}", "{{ message.payload() }}", "{{ message.payload | x }}", "{{ 1 + 1 }}", "{{", "}}", "{{ }}",
        "{{ message..x }}", "{{ message[x] }}", "{{ messages.x }}", "{{ message" + ".a" * 30 + " }}",
        "{{ message.x }}" * 101, "x" * 10_001, 5,
    ):  # fmt: skip
        with pytest.raises(tampu.InvalidConfig):
            templates.compiled(bad, "text")


@given(st.sampled_from(["text", "integer", "number", "boolean", "date", "choice"]), JSON)
def test_any_value_of_a_form_is_taken_or_refused(kind: Any, value: Any) -> None:
    field = ReviewField(kind, choices=("a", "b") if kind == "choice" else ())
    try:
        taken = forms.check_values({"f": field}, {"f": value}, complete=False)
    except tampu.InvalidMessage:
        return
    assert taken == ({} if value is None else {"f": value})


@given(JSON | st.dictionaries(FIELDS, JSON))
def test_any_review_is_understood_or_refused(review: Any) -> None:
    try:
        patterns.asked(review)
    except (tampu.InvalidMessage, tampu.PayloadTooLarge):
        return
    assert isinstance(review, str | dict)


def test_what_is_no_pattern_is_refused_with_its_field() -> None:
    with tampu.open("memory://", maintenance=False) as store:
        refused: list[tuple[dict[str, Any], str]] = [
            ({"options": []}, "options"),
            ({"options": ["a", "a"]}, "options"),
            ({"options": ["yes"], "deadline": 60}, "on_timeout"),
            ({"fields": {"x": "nope"}}, "fields.x"),
            ({"fields": {"x": {"type": "choice"}}}, "fields.x"),
            ({"fields": {"x": {"type": "number", "minimum": 2, "maximum": 1}}}, "fields.x"),
            ({"context": ["{{ nope }}"]}, "context[0].text"),
            ({"deadline": 60, "remind": 61}, "remind"),
            ({"deadline": 0.5}, "deadline"),
            ({"deadline": "soon"}, "deadline"),
            ({"approvals": 0}, "approvals"),
            ({"approvals": 2, "assignee": "ada"}, "approvals"),
            ({"notify": "_tampu.timers"}, "queue"),
        ]
        for fields, field in refused:
            with pytest.raises((tampu.InvalidConfig, tampu.InvalidMessage)) as error:
                store.patterns.put("p", **fields)
            assert error.value.field == field, fields
        assert store.patterns.list() == []
        store.patterns.put("p", parameters={"limit": 1}, queues="loans")
        store.queues.put("news", consumer_mode="broadcast")
        for queue, options in (
            ("loans", {"review": "nope"}), ("loans", {"review": {"pattern": "p", "parameters": {"x": 1}}}),
            ("other", {"review": "p"}), ("loans", {"review": "p", "key": "k"}), ("loans", {"review": "p", "hold": "x"}),
            ("news", {"review": {}}), ("loans", {"review": {"context": ["x" * 9000] * 3}}),
            ("loans", {"review": {"pattern": "p", "decision": {"option": "approve"}}}),
        ):  # fmt: skip
            with pytest.raises((tampu.InvalidMessage, tampu.PayloadTooLarge)) as error:
                store.publish(queue, 1, **options)
            assert error.value.field in ("review", "hold")
        assert store.queues.list() == ["news"]
