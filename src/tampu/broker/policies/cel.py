"""Expressions: CEL, compiled once and bounded before they run.

An evaluation cannot be stopped, so what may take long is refused when the expression is put: long texts, deep nesting,
loops inside of loops, and loops (`all`, `exists`, `exists_one`, `filter`, `map`) that use ``message`` inside. A loop
runs over a payload of at most 32 KB, or over a literal list, so its time is bounded too. `map` and `filter` copy what
they have for each element: they are for payloads of at most 2 KB. Regular expressions take linear time.
"""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from tampu.model.errors import InvalidConfig
from tampu.model.extras import install

MOST_CHARACTERS = 1000
MOST_PAYLOAD = 32 * 1024
"""Bytes of a payload that expressions can see."""
MOST_COPIED = 2 * 1024
"""Bytes of a payload that expressions with `map` or `filter` can see."""
_MOST_DEPTH = 24
_MOST_LOOPS = 3
_TOKEN = re.compile(r"""(?:[rR]?"(?:\\.|[^"\\])*"|[rR]?'(?:\\.|[^'\\])*')|[A-Za-z_]\w*|[()\[\]{}]""")
_LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map"})
_COPYING = re.compile(r"\b(?:map|filter)\s*\(")
_PATH = re.compile(r"message(?:\.[A-Za-z_]\w*)+")
_FIELD = re.compile(r"\bmessage\.([A-Za-z_]\w*)")
NOT_PARSED = object()
_FAILURES = (ValueError, TypeError, KeyError, RuntimeError, ArithmeticError, OverflowError, RecursionError)


class Failed(Exception):
    """An expression has no value for this message, such as one that uses a field which the payload does not have."""


class Context(NamedTuple):
    """A message as expressions see it."""

    variables: Any
    size: int
    """Bytes of its payload."""


class Expression:
    def __init__(self, source: str, program: Any) -> None:
        self.source = source
        self._program = program
        self._copies = _COPYING.search(source) is not None
        self.condition: Any = NOT_PARSED
        """What `conditions` made of it."""

    def value(self, context: Context) -> Any:
        """Its value in a context made by `context`. Raises `Failed`."""
        if self._copies and context.size > MOST_COPIED:
            raise Failed(f"map and filter are for payloads of at most {MOST_COPIED} bytes, not {context.size}")
        try:
            return self._program.execute(context.variables)
        except _FAILURES as error:
            raise Failed(f"{type(error).__name__}: {error}"[:300]) from None

    def is_true(self, context: Context) -> bool:
        found = self.value(context)
        if not isinstance(found, bool):
            raise Failed(f"the expression must be true or false, not {type(found).__name__}")
        return found

    def explained(self, context: Context) -> str:
        """The expression, with the values that it used."""
        shown = []
        for path in dict.fromkeys(_PATH.findall(self.source)):
            try:
                shown.append(f"{path} = {compiled(path).value(context)!r:.80}")
            except (Failed, InvalidConfig):
                shown.append(f"{path} is not there")
        return self.source + (f" ({', '.join(shown)})" if shown else "")


def context(message: dict[str, Any], size: int) -> Context:
    """A message, whose payload has ``size`` bytes, as expressions see it. Many expressions can use one context."""
    try:
        return Context(_module().Context(variables={"message": message}), size)
    except _FAILURES as error:
        raise Failed(f"expressions cannot read this message: {error}"[:300]) from None


def expression(source: Any, field: str) -> Expression:
    """Compile an expression of a user; raises `InvalidConfig`."""
    if not isinstance(source, str) or not 0 < len(source) <= MOST_CHARACTERS:
        raise InvalidConfig(f"{field} must be an expression of 1 to {MOST_CHARACTERS} characters", field=field)
    why = _too_much(source)
    if why is not None:
        raise InvalidConfig(f"{field}: {why}", field=field, hint="use a simpler expression, or several rules")
    try:
        return compiled(source)
    except InvalidConfig as error:
        raise InvalidConfig(f"{field}: {error.args[0]}", field=field) from None


@functools.lru_cache(4096)
def compiled(source: str) -> Expression:
    """An expression that was checked when it was put."""
    try:
        return Expression(source, _module().compile(source))
    except _FAILURES as error:
        text = " ".join(str(error).split())
        raise InvalidConfig(f"not a CEL expression: {text:.300}") from None


@functools.lru_cache(4096)
def fields_used(sources: tuple[str, ...]) -> frozenset[str] | None:
    """The fields of ``message`` that expressions use; None: perhaps all. To hand over fewer is faster."""
    used: set[str] = set()
    for source in sources:
        named = _FIELD.findall(source)
        if len(named) != source.count("message"):
            return None
        used.update(named)
    return frozenset(used)


def _too_much(source: str) -> str | None:
    """Why an expression may take too long; None if it cannot."""
    open_at: list[bool] = []
    loops, last = 0, ""
    for token in _TOKEN.findall(source):
        if token in "([{":
            begins_loop = token == "(" and last in _LOOPS
            loops += begins_loop
            if begins_loop and any(open_at):
                return "a loop inside of a loop"
            open_at.append(begins_loop)
            if len(open_at) > _MOST_DEPTH:
                return f"it is nested more than {_MOST_DEPTH} deep"
        elif token in ")]}" and open_at:
            open_at.pop()
        elif token == "message" and any(open_at):
            return "a loop that uses message inside"
        last = token
    return f"it has more than {_MOST_LOOPS} loops" if loops > _MOST_LOOPS else None


def _module() -> Any:
    try:
        import cel
    except ImportError:
        raise InvalidConfig("expressions need CEL", hint=install("policies")) from None
    return cel
