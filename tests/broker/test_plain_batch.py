"""Plain batches: what steps do with columns is what they do with drafts."""

from __future__ import annotations

import itertools
import uuid
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tampu.broker import publish, settings, validate
from tampu.broker.core import PublishSet
from tampu.broker.policies.schemas.step import HEADER
from tampu.broker.policies.schemas.validators import Validator
from tampu.engines.port import Document
from tampu.model.definitions import Action, Changes, Definition, Rule, Schema, Subscription
from tampu.model.errors import TampuError
from tampu.model.message import JSON, Encoded, NewMessage, unpack_body
from tampu.model.values import pack_body

VALUES = st.integers(-2, 2) | st.sampled_from(["", "a", "b", 2**63, 1.0, 0.5, None, True]) | st.just([1])
PAYLOADS = st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2) | VALUES
SAME_KIND = st.fixed_dictionaries({"a": st.integers(-2, 2), "b": st.sampled_from(["", "a", "b"])})
NEWS = st.lists(PAYLOADS, min_size=1, max_size=4) | st.lists(SAME_KIND, min_size=1, max_size=6)
WHEN = st.sampled_from(
    ["true", "message.payload.a == 1", "message.payload.a == 2", "message.payload.a > 0", "message.payload.b == 'a'",
     "message.payload.b != 'a' && message.payload.a <= 1", "message.type == 'message'", "message.priority == 0",
     "message.labels.x == '1'", "message.queue == 'other'", "message.payload == 1", "size(message.type) > 1"]
)  # fmt: skip
ACTIONS = st.sampled_from(
    [Action(set=Changes(labels={"x": "1"})), Action(set=Changes(labels={"x": "2"}, headers={"h": "1"})),
     Action(set=Changes(headers={HEADER: "mine"})), Action(set=Changes(priority=1)), Action(archive=True)]
)  # fmt: skip
RULES = st.lists(
    st.builds(
        Rule, name=st.just("r"), when=WHEN, actions=st.lists(ACTIONS, min_size=1, max_size=2).map(tuple),
        go_on=st.booleans(),
    ),
    max_size=4,
)  # fmt: skip
SCHEMAS = st.sampled_from(
    [{}, {"type": "object"}, {"required": ["a"]}, {"properties": {"a": {"type": "integer"}}},
     {"$defs": {"n": {"minimum": 0}}, "properties": {"a": {"$ref": "#/$defs/n"}}}]
)  # fmt: skip
SUBSCRIPTIONS = st.lists(st.none() | WHEN, max_size=3)


class Stored:
    """Documents of definitions, and the settings of queues."""

    def __init__(self, config: dict[str, Any], definitions: list[Definition]) -> None:
        self._config = Document("queue", "t", "q", 1, msgspec.json.encode(config))
        self._definitions = [
            Document("definition", "t", f"{type(one).__name__.lower()}:{at}", 1, msgspec.json.encode(one))
            for at, one in enumerate(definitions)
        ]

    def document(self, _kind: str, _tenant: str, name: str) -> Document | None:
        return self._config if name == "q" else None

    def documents(self, _kind: str, _tenant: str) -> list[Document]:
        return self._definitions


def prepared(stored: Stored, news: list[Any]) -> Any:
    """The calls, with the same random ids each time, and without values that mean nothing."""
    numbers = itertools.count()
    try:
        with mock.patch.object(uuid, "uuid4", side_effect=lambda: uuid.UUID(int=next(numbers))):
            made = publish.prepare("t", "q", news, lambda queue: settings.read_with_policies(stored, "t", queue))
    except TampuError as error:
        return type(error), str(error), error.field
    calls = made.calls if isinstance(made, PublishSet) else [made]
    for call in calls:
        for item in call.items:
            assert item.packed == pack_body(item.body)
            assert unpack_body(item.packed) == item.body
    replace = msgspec.structs.replace
    return [
        replace(call, items=[replace(item, window_us=0, ttl_us=item.ttl_us or None) for item in call.items])
        for call in calls
    ]


def both_ways(config: dict[str, Any], definitions: list[Definition], news: list[Any]) -> None:
    stored = Stored(config, definitions)
    found = prepared(stored, news)
    with mock.patch.object(validate, "payloads", return_value=None):
        assert found == prepared(stored, news)


def definitions(rules: list[Rule], schema: dict[str, Any] | None, filters: list[str | None]) -> list[Definition]:
    found: list[Definition] = [msgspec.structs.replace(rule, name=f"r{at}") for at, rule in enumerate(rules)]
    if schema is not None:
        found.append(Schema(name="s", schema=schema))
    names = [f"s{at}" for at in range(len(filters))]
    return found + [
        Subscription(name=f"q@{name}", queue="q", subscriber=name, filter=filter)
        for name, filter in zip(names, filters, strict=True)
    ]


@given(RULES, st.none() | SCHEMAS, st.none() | SUBSCRIPTIONS, NEWS, st.sampled_from(["refuse", "dead"]))
@example([], {"type": "object"}, [None, "message.payload.a > 0"], [{"a": 1, "b": ""}, {"a": 0, "b": ""}], "refuse")
def test_columns_and_drafts_are_stored_alike(
    rules: list[Rule], schema: dict[str, Any] | None, filters: list[str | None] | None, news: list[Any], invalid: str
) -> None:
    config = {"on_invalid": invalid, "consumer_mode": "shared" if filters is None else "broadcast"}
    both_ways(config, definitions(rules, schema, filters or []), news)


@given(
    st.lists(
        st.builds(NewMessage, SAME_KIND, type=st.sampled_from([None, "a"]), labels=st.sampled_from([None, {"x": "1"}]))
        | st.builds(NewMessage, SAME_KIND.map(msgspec.json.encode), content_type=st.just(JSON))
        | st.builds(Encoded, SAME_KIND.map(msgspec.json.encode) | st.just(b"{"), st.just(JSON), st.just("a"))
        | SAME_KIND,
        min_size=1, max_size=3,
    ),
    st.sampled_from(["fifo", "priority", "fair"]),
)  # fmt: skip
def test_batches_of_any_form_are_stored_alike(news: list[Any], ordering: str) -> None:
    some = [Rule(name="r", when="message.payload.a > 0", actions=(Action(set=Changes(labels={"x": "2"})),))]
    both_ways({"ordering": ordering}, definitions(some, {"type": "object"}, []), news)


def is_plain(news: list[Any], *found: Definition, **config: Any) -> bool:
    """True if the batch went through the steps without drafts."""
    with mock.patch.object(publish, "Batch", side_effect=AssertionError):
        try:
            prepared(Stored(config, list(found)), news)
        except AssertionError:
            return False
    return True


@pytest.mark.parametrize(
    "news",
    [[{"a": 1}] * 3, [NewMessage({"a": 1}, type="x")] * 3, [NewMessage(b'{"a":1}', content_type=JSON)] * 3,
     [Encoded(b'{"a":1}', JSON, "x")] * 3],
)  # fmt: skip
def test_the_common_batches_are_plain(news: list[Any]) -> None:
    labels = (Action(set=Changes(labels={"x": "1"})),)
    rules = [Rule(name=f"r{n}", when=f"message.payload.a == {n}", actions=labels) for n in range(3)]
    assert is_plain(news, *rules, Schema(name="s", schema={"type": "object"}))
    assert is_plain(news, *definitions([], None, [None, "message.payload.a > 0"]), consumer_mode="broadcast")
    assert not is_plain(news, Rule(name="r", actions=(Action(archive=True),)))


@pytest.mark.parametrize(
    "draft", ["", "http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#"]
)
@given(st.lists(PAYLOADS, max_size=4), SCHEMAS)
def test_a_list_is_accepted_if_all_in_it_are(draft: str, values: list[Any], schema: dict[str, Any]) -> None:
    check = Validator({**({"$schema": draft} if draft else {}), **schema})
    assert check.accepts_all(values) == all(map(check.accepts, values))
