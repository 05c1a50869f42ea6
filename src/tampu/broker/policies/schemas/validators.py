"""Validators: a schema, compiled. `jsonschema-rs` does the work.

A schema may refer to its own parts (`#/$defs/…`), and to nothing else: no file and no address is ever read. Regular
expressions run in linear time.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from tampu.model.definitions import Schema
from tampu.model.errors import InvalidConfig

_MOST_COMPILED = 1024
_NO_JSON = (ValueError, TypeError, OverflowError, RecursionError)
"""What a check raises for values that JSON does not have, such as bytes."""
_NOT_COMPILED = (ValueError, TypeError, RecursionError, OverflowError)
_REFERENCES = (b'"$ref"', b'"$dynamicRef"', b'"$recursiveRef"')


class Validator:
    """Checks payloads."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        try:
            self._compiled = _made(schema)
        except _NOT_COMPILED as error:
            raise InvalidConfig(f"not a JSON Schema: {str(error).splitlines()[0]:.300}", field="schema") from None
        self._is_valid = self._compiled.is_valid

    def accepts(self, value: Any) -> bool:
        try:
            return bool(self._is_valid(value))
        except _NO_JSON:
            return False

    def accepts_all(self, values: list[Any]) -> bool:
        """True if it accepts each of these values."""
        try:
            return self._are_valid(values)
        except _NO_JSON:
            return False

    @functools.cached_property
    def _are_valid(self) -> Callable[[list[Any]], bool]:
        """Checks a list of values, in a third of the time of one by one. A schema that refers to its own parts cannot
        be put into one of lists: its references would point to other places."""
        raw = msgspec.json.encode(self._schema)
        if not any(word in raw for word in _REFERENCES):
            with contextlib.suppress(*_NOT_COMPILED):
                dialect = {name: self._schema[name] for name in ("$schema",) if name in self._schema}
                of_lists: Callable[[list[Any]], bool] = _made({**dialect, "items": self._schema}).is_valid
                return of_lists
        return lambda values: all(map(self._is_valid, values))

    def fault(self, value: Any) -> tuple[str, str]:
        """(path, what is wrong there) of the first fault of a value that is not accepted."""
        try:
            found = next(iter(self._compiled.iter_errors(value)))
        except _NO_JSON as error:
            return "payload", f"it has a value that JSON does not have: {error!s:.200}"
        return path(found.instance_path), str(found.message)[:500]


def _made(schema: dict[str, Any]) -> Any:
    module = _module()
    options = module.RegexOptions()
    return module.validator_for(schema, offline=True, pattern_options=options, validate_formats=True)


def path(parts: list[str | int]) -> str:
    """Such as ``payload.lines[2].price``."""
    return "payload" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _module() -> Any:
    try:
        import jsonschema_rs
    except ImportError:
        raise InvalidConfig("schemas need jsonschema-rs", hint="pip install 'tampu[policies]'") from None
    return jsonschema_rs


@functools.lru_cache(_MOST_COMPILED)
def _compiled(raw: bytes) -> Validator:
    return Validator(msgspec.json.decode(raw))


def validator(schema: Schema) -> Validator:
    """The compiled schema. It is kept, so a change of anything else costs nothing."""
    return _compiled(msgspec.json.encode(schema.schema, order="deterministic"))


def covers(wide: Schema, narrow: Schema) -> bool:
    """True if everything that matches ``narrow`` also matches ``wide``. False if that cannot be proved."""
    module = _module()
    try:
        one, other = module.canonicalize(wide.schema), module.canonicalize(narrow.schema)
        return bool(one.covers(other) == module.canonical.Containment.YES)
    except (ValueError, TypeError, RecursionError, OverflowError):
        return False
