"""Conditions: the most common expressions, as functions of Python.

``message.type == 'order' && message.payload.total > 1000``: comparisons of a field with a text or a number, all of
which must be true. Such a function decodes only what it asks for, and needs no context as CEL does (20 µs to make).
It answers only where it surely has the value that CEL has (a test compares them), else None: CEL decides.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tampu.broker.plain_batch import PlainBatch
from tampu.broker.policies import cel, seen
from tampu.broker.publish_steps import Draft
from tampu.model.errors import InvalidMessage

_COMPARISON = re.compile(
    r"""\s*message\.(?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(?P<how>==|!=|<=|>=|<|>)\s*
    (?:(?P<number>-?(?:0|[1-9]\d{0,14}))(?![\w.])|'(?P<single>[^'\\\r\n]*)'|"(?P<double>[^"\\\r\n]*)")\s*""",
    re.VERBOSE,
)
_HOW: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_MOST_INT = (1 << 63) - 1
_NUMBERS = frozenset({int, float})
_MISSING = object()
_PAIRS = frozenset({"headers", "labels"})
_FIELDS = _PAIRS | {"queue", "type", "priority", "correlation_id", "key", "group", "source"}


class Comparison(NamedTuple):
    path: tuple[str, ...]
    """Of the field, after ``message``."""
    how: str
    literal: int | str


class View:
    """A message that is being published, as conditions and expressions see it."""

    __slots__ = ("_context", "_draft", "_fields", "_payload")

    def __init__(self, draft: Draft, fields: frozenset[str] | None = None) -> None:
        self._draft = draft
        self._fields = fields
        """Those that expressions use; None: perhaps all."""
        self._payload: Any = None
        self._context: cel.Context | None = None

    @property
    def context(self) -> cel.Context:
        """For CEL, made on first use. Raises `cel.Failed`."""
        if self._context is None:
            self._context = seen.of_draft(self._draft, self._fields)
        return self._context

    def is_true(self, expression: cel.Expression) -> bool:
        """Raises `cel.Failed`."""
        condition = condition_of(expression)
        found = None if condition is None else condition(self)
        return expression.is_true(self.context) if found is None else found

    def payload(self) -> Any:
        """Decoded; `_MISSING` if it is too large for expressions, or cannot be decoded."""
        if self._payload is None:
            if len(self._draft.field("payload")) > cel.MOST_PAYLOAD:
                return _MISSING
            try:
                self._payload = self._draft.payload
            except InvalidMessage:
                return _MISSING
        return self._payload

    def field(self, name: str) -> Any:
        found = self._draft.queue if name == "queue" else self._draft.field(name)
        return found if found is not None else {} if name in _PAIRS else ""


Condition = Callable[[View], bool | None]


def parse(source: str) -> list[Comparison] | None:
    """The comparisons of an expression, none if it is ``true``; None if it has anything else."""
    found: list[Comparison] = []
    if source.strip() == "true":
        return found
    at = 0
    while match := _COMPARISON.match(source, at):
        number, single, double = match["number"], match["single"], match["double"]
        literal = int(number) if number is not None else single if single is not None else double
        found.append(Comparison(tuple(match["path"].split(".")), match["how"], literal))
        at = match.end()
        if at == len(source):
            return found
        if not source.startswith("&&", at):
            return None
        at += 2
    return None


def condition_of(expression: cel.Expression) -> Condition | None:
    """The condition that an expression is; None if it is none."""
    if expression.condition is cel.NOT_PARSED:
        comparisons = parse(expression.source)
        expression.condition = None if comparisons is None else _all([_test(one) for one in comparisons])
    return expression.condition  # type: ignore[no-any-return]  # a Condition, which `cel` does not know


def _all(tests: Sequence[Condition]) -> Condition:
    if len(tests) == 1:
        return tests[0]

    def test(view: View) -> bool | None:
        for one in tests:
            found = one(view)
            if not found:
                return found
        return True

    return test


def _test(comparison: Comparison) -> Condition:
    path, how, literal = comparison
    compare, read = _HOW[how], reader(path)

    def test(view: View) -> bool | None:
        value = read(view)
        return compare(value, literal) if comparable(value, literal) else None

    return test


def column_test(comparisons: Sequence[Comparison], batch: PlainBatch) -> list[bool] | None:
    """For each message of a plain batch whether all these comparisons are true. None: CEL must decide."""
    found = [True] * len(batch.raws)
    for path, how, literal in comparisons:
        values = column(path, literal, batch)
        if values is None:
            return None
        compare = _HOW[how]
        found = [before and compare(value, literal) for before, value in zip(found, values, strict=True)]
    return found


def column(path: tuple[str, ...], literal: int | str, batch: PlainBatch) -> list[Any] | None:
    """A field of the messages of a plain batch; None if not all can be compared with the literal as CEL does."""
    first, *names = path
    if first == "payload" and batch.largest <= cel.MOST_PAYLOAD:
        values = batch.column(tuple(names))
        kinds = set(map(type, values))
        if type(literal) is str:
            return values if kinds == {str} else None
        numbers = kinds <= _NUMBERS and min(values) >= -_MOST_INT and max(values) <= _MOST_INT
        return values if numbers else None
    if names or first not in _FIELDS - _PAIRS:
        return None
    value = {"queue": batch.queue, "type": batch.type, "priority": 0}.get(first, "")
    return [value] * len(batch.raws) if comparable(value, literal) else None


def comparable(value: Any, literal: int | str) -> bool:
    """True if Python compares them as CEL does."""
    kind = type(value)
    if kind is str or type(literal) is str:
        return kind is type(literal)
    return (kind is int and -_MOST_INT <= value <= _MOST_INT) or kind is float


def reader(path: tuple[str, ...]) -> Callable[[View], Any]:
    """A function that reads a field, given by its path after ``message``. `_MISSING`: it has none, or perhaps none."""
    first, *names = path

    def read(view: View) -> Any:
        value = view.payload() if first == "payload" else view.field(first)
        for name in names:
            if type(value) is not dict:
                return _MISSING
            value = value.get(name, _MISSING)
        return value

    return read if first in _FIELDS or first == "payload" else lambda _view: _MISSING
