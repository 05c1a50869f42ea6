"""Patterns: reviews under a name, with versions and parameters. Their checks and verbs, and the review of a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.policies.definitions import DefinitionVerbs, Kind, texts
from tampu.broker.policies.reviews import forms, templates
from tampu.model.decoders import convert
from tampu.model.errors import InvalidConfig, InvalidMessage, PayloadTooLarge
from tampu.model.reviews import Asked, ReviewEscalation, ReviewField, ReviewOption, ReviewPattern, Section
from tampu.model.times import SECOND, duration

_MOST_SECTIONS = 20
_MOST_OPTIONS = 20
_MOST_ROLES = 20
_MOST_APPROVALS = 20
_MOST_PARAMETERS = 50
_MOST_TEXT = 1000
_MOST_ASKED = 16 * 1024
INLINE = "inline"
"""The name of a review that a message brings with it."""


class Patterns(Kind[ReviewPattern]):
    word = "pattern"
    plural = "patterns"
    struct = ReviewPattern
    keeps_versions = True

    def check(self, definition: ReviewPattern) -> ReviewPattern:
        definition = _in_full(definition)
        if len(definition.context) > _MOST_SECTIONS:
            raise InvalidConfig(f"a pattern has at most {_MOST_SECTIONS} sections", field="context")
        for number, section in enumerate(definition.context):
            assert isinstance(section, Section)
            templates.compiled(section.text, f"context[{number}].text")
            _short(section.title, f"context[{number}].title")
        _check_options(definition)
        _check_form(definition)
        _check_people(definition)
        _check_times(definition)
        _check_parameters(definition.parameters)
        texts(definition.queues, "queues")
        if definition.notify is not None:
            validate.name(definition.notify, "queue")
        return definition

    def places(self, definition: ReviewPattern) -> tuple[str, ...]:
        own = definition.queues or ("*",)
        return own if definition.notify is None else (*own, definition.notify)


def _in_full(given: ReviewPattern) -> ReviewPattern:
    """The pattern with sections, options and fields written out."""
    context = tuple(Section(one) if isinstance(one, str) else one for one in given.context)
    fields: dict[str, ReviewField | str] = {}
    for name, one in given.fields.items():
        try:
            fields[name] = convert({"type": one}, ReviewField) if isinstance(one, str) else one
        except msgspec.ValidationError as error:
            raise InvalidConfig(f"fields.{name}: {error}", field=f"fields.{name}") from None
    return msgspec.structs.replace(given, context=context, options=given.choices, fields=fields)


def _short(value: str, field: str, most: int = 200) -> None:
    if len(value) > most:
        raise InvalidConfig(f"{field} has at most {most} characters", field=field)


def _check_options(definition: ReviewPattern) -> None:
    names = [one.name for one in definition.choices]
    if not 0 < len(names) <= _MOST_OPTIONS or len(set(names)) < len(names):
        raise InvalidConfig(f"a pattern has 1 to {_MOST_OPTIONS} options with different names", field="options")
    for one in definition.choices:
        validate.name(one.name, "option")
        _short(one.title, "options")
    if definition.deadline is not None and definition.on_timeout not in names:
        raise InvalidConfig(
            f"on_timeout {definition.on_timeout!r:.100} is not an option",
            field="on_timeout",
            hint=f"options: {', '.join(names)}",
        )


def _check_form(definition: ReviewPattern) -> None:
    if len(definition.fields) > forms.MOST_FIELDS:
        raise InvalidConfig(f"a pattern has at most {forms.MOST_FIELDS} fields", field="fields")
    for name, field in definition.form.items():
        validate.name(name, "field")
        _short(field.title, f"fields.{name}.title")
        forms.check_field(name, field)


def _check_people(definition: ReviewPattern) -> None:
    more = definition.escalate or ReviewEscalation(1)
    for roles in (definition.roles, more.roles):
        if len(roles) > _MOST_ROLES:
            raise InvalidConfig(f"at most {_MOST_ROLES} roles", field="roles")
        for role in roles:
            validate.name(role, "role")
    for person in (definition.assignee, more.assignee):
        if person is not None:
            validate.text(person, "assignee", 256)
    validate.whole(definition.approvals, "approvals", 1, _MOST_APPROVALS)
    if definition.approvals > 1 and (definition.assignee or more.assignee):
        raise InvalidConfig("several approvals cannot come from one assignee", field="approvals", hint="use roles")


def _check_times(definition: ReviewPattern) -> None:
    times = schedule(definition)
    late = [name for name, at in times.items() if at > times.get("deadline", at)]
    if late:
        raise InvalidConfig(f"{late[0]} is after the deadline", field=late[0])
    if any(at < SECOND for at in times.values()):
        raise InvalidConfig("reviews have at least a second", field="deadline")


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    if len(parameters) > _MOST_PARAMETERS:
        raise InvalidConfig(f"at most {_MOST_PARAMETERS} parameters", field="parameters")
    for name, value in parameters.items():
        validate.name(name, "parameter")
        if isinstance(value, str):
            _short(value, f"parameters.{name}", _MOST_TEXT)


def schedule(definition: ReviewPattern) -> dict[str, int]:
    """What is done after how many microseconds: ``remind``, ``escalate``, ``deadline``."""
    given = {
        "remind": definition.remind,
        "escalate": None if definition.escalate is None else definition.escalate.after,
        "deadline": definition.deadline,
    }
    return {
        name: duration(value, name, zero=False, error=InvalidConfig)
        for name, value in given.items()
        if value is not None
    }


PATTERNS = Patterns()


class PatternVerbs(DefinitionVerbs):
    def put_pattern(
        self,
        name: str,
        *,
        context: list[Any] | tuple[Any, ...] = (),
        options: list[Any] | tuple[Any, ...] = ("approve", "refuse"),
        fields: dict[str, Any] | None = None,
        roles: list[str] | tuple[str, ...] = (),
        assignee: str | None = None,
        approvals: int = 1,
        parameters: dict[str, Any] | None = None,
        deadline: float | str | None = None,
        on_timeout: str = "refuse",
        remind: float | str | None = None,
        escalate: dict[str, Any] | ReviewEscalation | None = None,
        notify: str | None = None,
        queues: str | list[str] | tuple[str, ...] | None = None,
    ) -> Steps[ReviewPattern]:
        """What reviewers see and decide, under a name. ``publish(..., review=name)`` uses it.

        ``context`` has templates over the message, such as ``{{ message.payload.total }}``. Each change is a new
        version; reviews that have begun keep theirs.
        """
        given = {
            "context": context, "options": options, "fields": fields or {}, "roles": roles, "assignee": assignee,
            "approvals": approvals, "parameters": parameters or {}, "deadline": deadline, "on_timeout": on_timeout,
            "remind": remind, "escalate": escalate, "notify": notify, "queues": texts(queues, "queues"),
        }  # fmt: skip
        return (yield from self.put_definition(PATTERNS, PATTERNS.made(name, _plain(given))))

    def get_pattern(self, name: str, version: int | None = None) -> Steps[ReviewPattern]:
        """A pattern as it is now, or as it was in an earlier version."""
        return (yield from self.get_definition(PATTERNS, name, version))

    def list_patterns(self) -> Steps[list[ReviewPattern]]:
        """All patterns, by name."""
        return (yield from self.list_definitions(PATTERNS))

    def delete_pattern(self, name: str) -> Steps[bool]:
        """Delete a pattern; false if there was none. Reviews that have begun keep it."""
        return (yield from self.delete_definition(PATTERNS, name))


def _plain(value: Any) -> Any:
    """Values as JSON has them, so that structs and dictionaries can be mixed."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, RecursionError) as error:
        raise InvalidConfig(f"not a pattern: {error}", field="pattern") from None


# -- the review of a message


def asked(value: Any) -> Asked:
    """What ``review=`` means: the name of a pattern, a pattern with parameters, or an inline review."""
    if isinstance(value, Asked):
        return value
    if isinstance(value, str):
        return Asked(validate.name(value, "pattern"))
    if isinstance(value, ReviewPattern):
        return Asked(inline=value)
    if not isinstance(value, dict):
        raise InvalidMessage(
            "review must be the name of a pattern, or a review", field="review", hint='for example review="loan"'
        )
    try:
        found = _asked(value)
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"review: {error}", field="review", hint="see tampu pattern show") from None
    except InvalidConfig as error:
        raise InvalidMessage(f"review: {error.args[0]}", field="review", hint=error.hint) from None
    if len(msgspec.json.encode(found)) > _MOST_ASKED:
        raise PayloadTooLarge(f"a review has at most {_MOST_ASKED} bytes", field="review", hint="use a pattern")
    return found


def _asked(value: dict[str, Any]) -> Asked:
    if "pattern" in value:
        found = convert(_plain(value), Asked)
        validate.name(found.pattern, "pattern")
        if found.version is not None:
            validate.whole(found.version, "version", 1, 1 << 53)
        if found.inline is not None:
            raise InvalidConfig("name a pattern, or say what it would say; not both", field="review")
        _check_parameters(found.parameters)
        return found
    given = value.get("inline", value)
    if not isinstance(given, dict):
        raise InvalidConfig("an inline review has the fields of a pattern", field="review")
    fields = {key: one for key, one in given.items() if key not in ("name", "version")}
    return Asked(inline=PATTERNS.made(INLINE, _plain(fields)))


def resolved(wanted: Asked, patterns: Mapping[str, ReviewPattern], queue: str) -> tuple[Asked, ReviewPattern]:
    """The review with the version of its pattern, and that pattern. Raises `InvalidMessage`."""
    if wanted.inline is not None:
        return wanted, wanted.inline
    pattern = patterns.get(wanted.pattern or "")
    if pattern is None or wanted.version not in (None, pattern.version):
        raise InvalidMessage(
            f"no pattern {wanted.pattern}" + (f" of version {wanted.version}" if wanted.version else ""),
            field="review",
            hint="see tampu pattern list; a message uses the newest version",
        )
    if not pattern.applies_to(queue):
        raise InvalidMessage(
            f"pattern {pattern.name} is for queues {', '.join(pattern.queues)}, not for {queue}", field="review"
        )
    unknown = [name for name in wanted.parameters if name not in pattern.parameters]
    if unknown:
        known = ", ".join(pattern.parameters) or "none"
        raise InvalidMessage(
            f"pattern {pattern.name} has no parameter {unknown[0]}", field="review", hint=f"its parameters: {known}"
        )
    return msgspec.structs.replace(wanted, version=pattern.version), pattern


def option_of(pattern: ReviewPattern, name: Any) -> ReviewOption:
    found = next((one for one in pattern.choices if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in pattern.choices)
        raise InvalidMessage(f"{name!r:.100} is not an option", field="option", hint=f"options: {known}")
    return found
