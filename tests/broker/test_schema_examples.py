"""Examples match their schema, and schemas of tasks accept what the task publishes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tampu
from tampu.broker.policies.schemas.examples import example
from tampu.model.definitions import Schema

numbers = st.integers(-50, 50)
leaves = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])}),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, numbers, st.integers(0, 9)),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + 1}, numbers),
    st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
              st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from([{"type": "string", "format": one} for one in ("date-time", "email", "uuid", "uri", "ipv4")]),
    st.just({"enum": ["a", 2, None]}), st.just({"const": {"x": 1}}), st.just({"$ref": "#/$defs/part"}), st.just({}),
)  # fmt: skip
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(
            lambda fields, all: {"type": "object", "properties": fields, "required": list(fields) if all else []},
            st.dictionaries(st.sampled_from("abcd"), inner, max_size=3), st.booleans(),
        ),
        st.builds(lambda ways: {"anyOf": ways}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw is slow
@given(schemas)
def test_an_example_matches_its_schema(schema: dict[str, Any]) -> None:
    whole = {**schema, "$defs": {"part": {"type": "object", "required": ["id"], "properties": {"id": {"minimum": 3}}}}}
    jsonschema_rs.validator_for(whole).validate(example(Schema(name="s", schema=whole)))


def test_where_no_example_can_be_made_the_error_says_what_to_do() -> None:
    itself = {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/a"}}}
    endless = {"$ref": "#/$defs/a", "$defs": {"a": itself}}
    wrong: list[dict[str, Any]] = [{"type": "string", "pattern": "^[0-9]{17}$"}, {"not": {}}, endless]
    for schema in wrong:
        with pytest.raises(tampu.InvalidState, match="no example") as failed:
            example(Schema(name="s", schema=schema))
        assert "examples" in (failed.value.hint or "")
    assert example(Schema(name="s", schema={"type": "string", "pattern": "^a$", "examples": ["a"]})) == "a"


class Line(msgspec.Struct):
    article: str
    count: int = 1


def test_the_schema_of_a_task_accepts_its_payloads_and_refuses_others() -> None:
    with tampu.open("memory://") as store:
        app = tampu.App(store)

        @app.task
        def order(number: int, lines: list[Line], *, note: str | None = None) -> None: ...

        made = order.arguments.schema()
        store.schemas.put("order", made, types=order.name)
        order.publish(7, [Line("tea")], note="now")
        with pytest.raises(tampu.InvalidMessage):
            store.publish("default", {"number": "seven", "lines": []}, type=order.name)
        args, kwargs = order.arguments.unpack(msgspec.json.encode(store.schemas.example("order")))
        order.publish(*args, **kwargs)
