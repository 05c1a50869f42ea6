"""Arguments on their way: a JSON object of the parameters, checked at publish and before the call."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from typing import Any

import msgspec
import pytest

import tampu
from tampu.worker.arguments import Arguments, WrongArguments


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Person:
    name: str
    born: datetime.date


def _there_and_back(function: Any, *args: Any, **kwargs: Any) -> Any:
    held = Arguments(function, globals())
    found, named = held.unpack(*held.pack(args, kwargs))
    return function(*found, **named)


def test_every_kind_of_parameter_arrives_as_it_was_given() -> None:
    def function(a: int, /, b: str, *rest: float, c: bool = False, **more: int) -> Any:
        return a, b, rest, c, more

    assert _there_and_back(function, 1, "x") == (1, "x", (), False, {})
    assert _there_and_back(function, 1, b="x", c=True) == (1, "x", (), True, {})
    assert _there_and_back(function, 1, "x", 0.5, 1.5, c=True, d=4, a=5) == (1, "x", (0.5, 1.5), True, {"d": 4, "a": 5})


def test_keyword_only_without_default_after_ones_with() -> None:
    def function(a: int = 1, *, b: int, c: int = 3) -> Any:
        return a, b, c

    assert _there_and_back(function, b=2) == (1, 2, 3)
    assert _there_and_back(function, 5, b=2, c=9) == (5, 2, 9)


def test_rich_types_arrive_by_their_annotations() -> None:
    def function(p: Point, store: Person, when: datetime.datetime, n: decimal.Decimal, u: uuid.UUID, raw: bytes) -> Any:
        return p, store, when, n, u, raw

    given = (
        Point(1, 2), Person("ada", datetime.date(1815, 12, 10)), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        decimal.Decimal("1.10"), uuid.UUID(int=7), b"\x00\xff",
    )  # fmt: skip
    assert _there_and_back(function, *given) == given


def test_defaults_that_are_mutable_are_not_shared() -> None:
    def function(items: list[int] = [1]) -> list[int]:  # noqa: B006 - this is what it is about
        return items

    assert _there_and_back(function) == [1]
    assert _there_and_back(function, [2]) == [2]


def test_payload_is_an_object_that_people_and_other_languages_can_write(memory: tampu.App) -> None:
    @memory.task
    def send(to: str, *, subject: str = "hi") -> str:
        return f"{subject}, {to}"

    assert msgspec.json.decode(send.message("ada").new.payload) == {"to": "ada"}
    assert msgspec.json.decode(send.message("ada", subject="x").new.payload) == {"to": "ada", "subject": "x"}
    found = memory.store.publish("default", {"to": "grace"}, type="send")
    with tampu.working(memory):
        assert memory.store.result(found.id, wait=30).result == "hi, grace"


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {}, "Missing required argument"),
        (("x",), {}, "Expected `int`, got `str`"),
        ((1, 2, 3), {}, "takes 2 positional arguments but 3 were given"),
        ((1,), {"c": 1}, "unexpected keyword argument 'c'"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
        ((object(),), {}, "cannot be sent"),
        ((1,), {"b": float("nan")}, "no NaN"),
    ],
)
def test_wrong_arguments_are_refused_at_publish(
    memory: tampu.App, args: Any, kwargs: dict[str, Any], expected: str
) -> None:
    @memory.task
    def work(a: int, b: Any = None) -> None: ...

    with pytest.raises(tampu.InvalidMessage, match=expected):
        work.publish(*args, **kwargs)
    assert not memory.store.queues.list()


def test_annotation_that_cannot_be_read_is_reported_when_it_is_needed(memory: tampu.App) -> None:
    def work(a: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - this is what it is about

    task = memory.task(work)
    with pytest.raises(tampu.InvalidConfig, match=r"annotations of .*work"):
        task.publish(1)


def test_payload_that_does_not_fit_is_wrong() -> None:
    def function(a: int) -> None: ...

    held = Arguments(function, {})
    for raw in (b"", b"[]", b"{}", b'{"a": "x"}', b'{"a": 1, "b": 2}', b"\xff"):
        with pytest.raises(WrongArguments):
            held.unpack(raw)
