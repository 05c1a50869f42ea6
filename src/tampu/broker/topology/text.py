"""Topology files as text: YAML, of which JSON is a part, read into plain values with the line of each.

Values are those of YAML 1.2: `yes`, `no` and dates are texts. Nothing else than values is ever made from a file. Size,
depth and the number of values are bounded, also of those that aliases repeat. A key that is there twice is an error.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import msgspec

from tampu.model.errors import InvalidConfig
from tampu.model.extras import install

MOST_BYTES = 1 << 20
_MOST_DEPTH = 64
_MOST_VALUES = 100_000
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None,
          "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}  # fmt: skip
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")


class Parsed(NamedTuple):
    data: Any
    lines: dict[str, int]
    """The line of each value, by its path, such as ``rules.vip.actions[0].copy``."""


def below(path: str, key: str | int) -> str:
    """The path of a value inside of another."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def line_of(lines: dict[str, int], path: str | None) -> int | None:
    """The line of a path, or of the nearest value around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[: max(path.rfind("."), path.rfind("["))] if "." in path or "[" in path else ""
    return None


def parse(text: str | bytes, file: str) -> Parsed:
    """Read a file; raises `InvalidConfig` with the line of the mistake."""
    if len(text) > MOST_BYTES:
        raise InvalidConfig(f"{file} has more than {MOST_BYTES:,} bytes", hint="split it into several files")
    try:
        import yaml  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        return _from_json(text, file)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Reader(file).read(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark is not None else file
        why = getattr(error, "problem", None) or str(error)
        raise InvalidConfig(f"{where}: not YAML: {' '.join(str(why).split()):.300}") from None
    except (ValueError, RecursionError) as error:  # such as half a character
        raise InvalidConfig(f"{file}: not YAML: {' '.join(str(error).split()):.300}") from None


def _from_json(text: str | bytes, file: str) -> Parsed:
    try:
        return Parsed(msgspec.json.decode(text), {})
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidConfig(f"{file} is not JSON, and YAML needs PyYAML: {error}", hint=install("policies")) from None


class _Open:
    """A list or mapping whose end was not read yet."""

    def __init__(self, value: Any, path: str, anchor: str | None, before: int) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.before = before
        self.key: str | None = None
        self.depth = 1


class _Anchored(NamedTuple):
    """A value that aliases may repeat."""

    value: Any
    size: int
    """Values in it, with itself."""
    depth: int


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._lines: dict[str, int] = {}
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._count = 0
        self._documents: list[Any] = []

    def read(self, events: Any) -> Parsed:
        for event in events:
            kind = type(event).__name__
            if kind == "ScalarEvent":
                self._value(event, self._scalar(event))
            elif kind in ("MappingStartEvent", "SequenceStartEvent"):
                self._begin(event, {} if kind == "MappingStartEvent" else [])
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                self._end()
            elif kind == "AliasEvent":
                self._alias(event)
        if len(self._documents) != 1:
            raise InvalidConfig(f"{self._file} must have one YAML document, not {len(self._documents)}")
        return Parsed(self._documents[0], self._lines)

    def _fail(self, event: Any, why: str) -> InvalidConfig:
        return InvalidConfig(f"{self._file}:{event.start_mark.line + 1}: {why}")

    def _scalar(self, event: Any) -> Any:
        value: str = event.value
        if event.tag not in _TEXT_TAGS:
            raise self._fail(event, f"the tag {event.tag:.80} is not supported")
        if not event.implicit[0] or event.tag is not None:  # quoted
            return value
        if value in _WORDS:
            return _WORDS[value]
        if _INT.match(value) and len(value) <= 19:
            return int(value)
        if _FLOAT.match(value) and len(value) <= 64 and math.isfinite(number := float(value)):
            return number
        return value

    def _place(self, event: Any) -> str | None:
        """The path of the value that begins here; None if it is a key."""
        self._count += 1
        if self._count > _MOST_VALUES:
            raise self._fail(event, f"more than {_MOST_VALUES:,} values, those of aliases included")
        if not self._open:
            return ""
        parent = self._open[-1]
        if isinstance(parent.value, list):
            return below(parent.path, len(parent.value))
        return None if parent.key is None else below(parent.path, parent.key)

    def _value(self, event: Any, value: Any) -> None:
        path = self._place(event)
        if path is None:
            self._key(event, value)
            return
        self._note(path, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1, 0)
        self._add(value, 0)

    def _key(self, event: Any, value: Any) -> None:
        parent = self._open[-1]
        key = value if isinstance(value, str) else event.value
        if key in parent.value:
            raise self._fail(event, f"{below(parent.path, key):.150} is there twice")
        parent.key = key
        self._note(below(parent.path, key), event)

    def _note(self, path: str, event: Any) -> None:
        self._lines.setdefault(path, event.start_mark.line + 1)

    def _begin(self, event: Any, value: Any) -> None:
        before = self._count
        path = self._place(event)
        if path is None:
            raise self._fail(event, "a key must be a text")
        if len(self._open) >= _MOST_DEPTH:
            raise self._fail(event, f"nested more than {_MOST_DEPTH} deep")
        if event.tag is not None:
            raise self._fail(event, f"the tag {event.tag:.80} is not supported")
        self._note(path, event)
        self._open.append(_Open(value, path, event.anchor, before))

    def _end(self) -> None:
        done = self._open.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = _Anchored(done.value, self._count - done.before, done.depth)
        self._add(done.value, done.depth)

    def _alias(self, event: Any) -> None:
        found = self._anchors.get(event.anchor)
        if found is None:  # also one inside of itself
            raise self._fail(event, f"no value has the anchor {event.anchor:.80}")
        path = self._place(event)
        if path is None:
            raise self._fail(event, "a key must be a text")
        if len(self._open) + found.depth > _MOST_DEPTH:
            raise self._fail(event, f"nested more than {_MOST_DEPTH} deep")
        self._count += found.size - 1
        self._note(path, event)
        self._add(found.value, found.depth)

    def _add(self, value: Any, depth: int) -> None:
        if not self._open:
            self._documents.append(value)
            return
        parent = self._open[-1]
        parent.depth = max(parent.depth, depth + 1)
        if isinstance(parent.value, list):
            parent.value.append(value)
        else:
            parent.value[parent.key] = value
            parent.key = None
