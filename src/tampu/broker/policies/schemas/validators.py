"""Validators: a schema, compiled. `jsonschema-rs` does the work.

A schema may refer to its own parts (`#/$defs/…`), and to nothing else: no file and no address is ever read. Regular
expressions run in linear time.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from tampu.model.definitions import Schema
from tampu.model.errors import InvalidConfig
from tampu.model.extras import install

_MOST_COMPILED = 1024
_NO_JSON = (ValueError, TypeError, OverflowError, RecursionError)
"""What a check raises for values that JSON does not have, such as bytes."""


class Validator:
    """Checks payloads."""

    def __init__(self, schema: dict[str, Any]) -> None:
        module = _module()
        try:
            options = module.RegexOptions()
            self._compiled = module.validator_for(schema, offline=True, pattern_options=options, validate_formats=True)
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise InvalidConfig(f"not a JSON Schema: {str(error).splitlines()[0]:.300}", field="schema") from None
        self._is_valid = self._compiled.is_valid

    def accepts(self, value: Any) -> bool:
        try:
            return bool(self._is_valid(value))
        except _NO_JSON:
            return False

    def fault(self, value: Any) -> tuple[str, str]:
        """(path, what is wrong there) of the first fault of a value that is not accepted."""
        try:
            found = next(iter(self._compiled.iter_errors(value)))
        except _NO_JSON as error:
            return "payload", f"it has a value that JSON does not have: {error!s:.200}"
        return path(found.instance_path), str(found.message)[:500]


def path(parts: list[str | int]) -> str:
    """Such as ``payload.lines[2].price``."""
    return "payload" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _module() -> Any:
    try:
        import jsonschema_rs
    except ImportError:
        raise InvalidConfig("schemas need jsonschema-rs", hint=install("policies")) from None
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
