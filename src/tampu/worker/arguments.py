"""The arguments of a task as a payload: an object with the parameters by name, checked against the annotations.

It is JSON, so that people can read it in `tampu peek`, the dashboard and the lake, and any language can publish a task.
It is MessagePack where JSON would change an argument. `publish` decodes the payload as the worker will, so a wrong
argument raises at the caller.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tampu.model import values
from tampu.model.decoders import from_json, from_msgpack
from tampu.model.errors import InvalidConfig, InvalidMessage
from tampu.model.message import JSON, MSGPACK

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SIMPLE = (bool, int, float, str, bytes, type(None))


def encode_other(value: Any) -> Any:
    """Encode types that msgspec does not know: pydantic models and the like."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"a value of type {type(value).__name__} cannot be sent")


def decode_other(kind: Any, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"a value of type {getattr(kind, '__name__', kind)} cannot be read")


def _schema_of_other(kind: Any) -> dict[str, Any]:
    made: dict[str, Any] = kind.model_json_schema() if hasattr(kind, "model_json_schema") else {"$defs": None}
    if "$defs" in made:
        raise NotImplementedError(f"{getattr(kind, '__name__', kind)} has no schema of one part")
    return made


_encode = msgspec.json.Encoder(enc_hook=encode_other).encode
_encode_msgpack = msgspec.msgpack.Encoder(enc_hook=encode_other).encode
_decode_any = msgspec.msgpack.Decoder().decode


class WrongArguments(InvalidMessage):
    """Arguments that do not fit the task's parameters."""


class WrongResult(Exception):
    """A result that does not match the task's return annotation."""


class Arguments:
    """Encodes and decodes the arguments and the result of one function."""

    def __init__(self, function: Callable[..., Any], known: Mapping[str, Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        try:
            hints = typing.get_type_hints(function, localns=dict(known), include_extras=True)
        except Exception as error:  # an annotation may raise anything; the author of the function must see it
            raise InvalidConfig(
                f"the annotations of {function.__qualname__} cannot be read: {error!r}",
                field="task",
                hint="types must be importable where the function is defined",
            ) from error
        self._positional = [p.name for p in parameters if p.kind in _POSITIONAL]
        self._keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self._var_args = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._var_kwargs = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._positional_only = frozenset(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY)
        self.all_positional = self._var_args is None and self._var_kwargs is None and not self._keyword
        """True if every parameter can be passed by position."""
        # In the order of a call: positional, *args, keyword-only, **kwargs.
        fields = [_field(p, hints.get(p.name, Any)) for p in parameters]
        try:
            self._struct = msgspec.defstruct(
                "Arguments", fields, kw_only=not self.all_positional, omit_defaults=True, forbid_unknown_fields=True,
                module=__name__,
            )  # fmt: skip
            self._decode = from_json(self._struct, dec_hook=decode_other).decode
            self._decode_msgpack = from_msgpack(self._struct, dec_hook=decode_other).decode
            self._returns = from_msgpack(hints.get("return", Any), dec_hook=decode_other)
            self._checks_result = hints.get("return", Any) not in (Any, object)
        except TypeError as error:
            raise InvalidConfig(
                f"the parameters of {function.__qualname__} cannot be sent: {error}", field="task"
            ) from error
        self._count = len(self._positional)
        self.may_return_none = not self._checks_result or self._accepts(_encode_msgpack(None))

    def _accepts(self, raw: bytes) -> bool:
        try:
            self._returns.decode(raw)
        except Exception:  # a type with its own decoder may raise anything
            return False
        return True

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, str]:
        """(payload, content type) of a call; raises `WrongArguments`."""
        try:
            if self.all_positional and not kwargs and len(args) <= self._count:
                given = self._struct(*args)
            else:
                given = self._struct(**self._named(args, kwargs))
            raw = self._as_json(given)
            if raw is not None:
                # The encoder writes NaN and infinity as null, which passes as Any.
                if b"null" in raw and not all(values.finite(value) for value in (*args, *kwargs.values())):
                    raise ValueError("JSON has no NaN and no infinity")
                return raw, JSON
            return values.pack(given, _encode_msgpack, self._decode_msgpack), MSGPACK
        except (*values.NOT_ENCODED, NotImplementedError) as error:
            hint = f"{error.hint}, or annotate the parameter" if isinstance(error, values.NotKept) else None
            raise WrongArguments(f"{self._function.__qualname__}: {error}", field="payload", hint=hint) from error

    def _as_json(self, given: Any) -> bytes | None:
        """The arguments as JSON; None if JSON would change one."""
        try:
            raw = _encode(given)
        except TypeError:  # perhaps a mapping with keys that JSON does not support
            _encode_msgpack(given)
            return None
        return raw if values.find_change(given, self._decode(raw)) is None else None

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = dict(zip(self._positional, args, strict=False))
        if len(args) > self._count:
            if self._var_args is None:
                raise TypeError(f"takes {self._count} positional arguments but {len(args)} were given")
            named[self._var_args] = args[self._count :]
        more: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in self._positional_only or (name not in self._positional and name not in self._keyword):
                if self._var_kwargs is None:
                    raise TypeError(f"got an unexpected keyword argument {name!r}")
                more[name] = value
            elif name in named:
                raise TypeError(f"got multiple values for argument {name!r}")
            else:
                named[name] = value
        if more and self._var_kwargs is not None:
            named[self._var_kwargs] = more
        return named

    def unpack(self, raw: bytes, content_type: str = JSON) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) to call the function with; raises `WrongArguments`."""
        decode = self._decode_msgpack if content_type == MSGPACK else self._decode
        try:
            found: tuple[Any, ...] = msgspec.structs.astuple(decode(raw))
        except (msgspec.MsgspecError, NotImplementedError, ValueError, RecursionError) as error:
            raise WrongArguments(str(error), field="payload") from error
        except Exception as error:  # a type with its own decoder may raise anything
            raise WrongArguments(f"{type(error).__name__}: {error}", field="payload") from error
        if self.all_positional:
            return found, {}
        args, at = found[: self._count], self._count
        if self._var_args is not None:
            args, at = (*args, *found[at]), at + 1
        kwargs = dict(zip(self._keyword, found[at:], strict=False))
        if self._var_kwargs is not None:
            kwargs.update(found[-1])
        return args, kwargs

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the payload, from the annotations."""
        try:
            return msgspec.json.schema(self._struct, schema_hook=_schema_of_other)
        except (TypeError, NotImplementedError) as error:
            raise InvalidConfig(
                f"no schema can be made of the parameters of {self._function.__qualname__}: {error}", field="task"
            ) from None

    def read_result(self, raw: bytes | None) -> Any:
        """Decode a result by the function's return annotation."""
        return None if raw is None else self._returns.decode(raw)

    def pack_result(self, value: Any) -> msgspec.Raw | None:
        """Encode a result. Raises `WrongResult` if it does not match the return annotation, and `TypeError` and the
        like if it would not be read back unchanged, by itself or with the annotation."""
        if value is None and self.may_return_none:
            return None
        raw = _encode_msgpack(value)
        read = self._decode_result if self._checks_result else _decode_any
        if values.find_change(value, read(raw)) is not None and (
            read is _decode_any or values.find_change(value, _decode_any(raw)) is not None
        ):
            values.pack(value, _encode_msgpack, read)
        return msgspec.Raw(raw)

    def _decode_result(self, raw: bytes) -> Any:
        try:
            return self._returns.decode(raw)
        except (msgspec.ValidationError, ValueError) as error:
            name = self._function.__qualname__
            raise WrongResult(f"the result does not match the annotation of {name}: {error}") from error


def _field(parameter: inspect.Parameter, kind: Any) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return (parameter.name, tuple[kind, ...], ())
    if parameter.kind is parameter.VAR_KEYWORD:
        return (parameter.name, dict[str, kind], msgspec.field(default_factory=dict))
    default = parameter.default
    if default is parameter.empty:
        return (parameter.name, kind)
    if isinstance(default, _SIMPLE):
        return (parameter.name, kind, default)
    return (parameter.name, kind, msgspec.field(default_factory=lambda: default))
