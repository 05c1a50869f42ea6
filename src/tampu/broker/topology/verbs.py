"""The verbs of topologies: apply a file as one unit, and export what is stored as a file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from tampu.broker.admin import reorder
from tampu.broker.audit import Recording
from tampu.broker.core import Read, Steps
from tampu.broker.policies import uses
from tampu.broker.policies.kinds import KINDS
from tampu.broker.topology import text
from tampu.broker.topology.grants import GrantSection
from tampu.broker.topology.schedules import ScheduleSection
from tampu.broker.topology.schema import json_schema
from tampu.broker.topology.sections import (
    GROUPS,
    ORDER,
    DefinitionSection,
    Fields,
    Plan,
    QueueSection,
    Section,
    changed_fields,
)
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument, Together
from tampu.model.errors import InvalidConfig, InvalidMessage, TampuError, VersionConflict
from tampu.model.topology import Applied

SECTIONS: tuple[Section, ...] = (
    QueueSection(), *(DefinitionSection(kind) for kind in KINDS), ScheduleSection(), GrantSection(),
)  # fmt: skip
"""In the order of an export. Kinds of definitions that are new are here by themselves."""
_BY_NAME = {section.name: section for section in SECTIONS}
MOST_CHANGES = 1000
"""Of one file."""
_PLACE = re.compile(r"`\$([.\[][^`]*)`")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_WAKES = frozenset({"status", "rate", "max_in_flight"})


class TopologyVerbs(Recording):
    def apply_topology(
        self,
        topology: str | bytes | dict[str, Any],
        *,
        dry_run: bool = False,
        prune: bool = False,
        file: str = "topology",
    ) -> Steps[Applied]:
        """Make the store as a topology says: queues, definitions, schedules, and grants of keys, as one unit.

        It is YAML, JSON, or a dict, with an entry for each name in each section; what is so already stays untouched.
        With ``prune``, entries that a section of the file does not have are removed; sections that the file does not
        have stay as they are. Settings are removed, queues and messages are not. If somebody changes one of the entries
        meanwhile, it is refused with `VersionConflict`, and nothing is changed. A mistake is named with its line.
        """
        lines: dict[str, int] = {}
        data: Any = topology
        if isinstance(topology, str | bytes):
            data, lines = text.parse(topology, file)
        try:
            return (yield from self.apply_data(data, dry_run=dry_run, prune=prune))
        except TampuError as error:
            line = text.line_of(lines, error.field)
            if line is None:
                raise
            raise type(error)(f"{file}:{line}: {error.message}", field=error.field, hint=error.hint) from None

    def apply_data(self, data: Any, *, dry_run: bool, prune: bool) -> Steps[Applied]:
        """Apply a topology that was read from its file."""
        sections = checked(data)
        plans: list[Plan] = yield Read(lambda engine: self._plan(engine, sections, prune=prune))
        changes = [plan.change for plan in plans]
        if dry_run or not plans:
            return Applied(changes, dry_run)
        if len(plans) > MOST_CHANGES:
            raise InvalidConfig(
                f"{len(plans):,} changes in one file; the limit is {MOST_CHANGES:,}", hint="split it into several files"
            )
        names = [f"{change.section}.{change.name}" for change in changes]
        records = [(yield from self._record("topology.apply", f"{len(names)} changes", None, names[:100]))]
        for plan in plans:
            change = plan.change
            records.append((yield from self._record(plan.action, change.name, change.before, change.after)))
        needed = [plan.needed for plan in plans]
        uses_calls: list[Any] = yield Read(lambda engine: uses.changes(engine, self.tenant, needed))
        try:
            yield Together(self.tenant, [*_once(plans), *uses_calls, *records])
        except VersionConflict as error:
            raise VersionConflict(
                f"nothing was applied: {error.message}", hint="look at tampu diff, and apply it again"
            ) from None
        self.core.settings.forget()
        yield from self._follow(plans)
        return Applied(changes)

    def _follow(self, plans: Iterable[Plan]) -> Steps[None]:
        """What the verbs of queues and schedules do after a change. Maintenance does it too, if this process dies."""
        for plan in plans:
            change = plan.change
            if plan.due_us is not None:
                self.core.on_due(plan.due_us)
            section = _BY_NAME[change.section]
            if isinstance(section, DefinitionSection) and change.after is not None:
                kind = section.kind
                made = kind.made(change.name, {**kind.implied(change.name), **change.after})
                yield from kind.afterwards(self, made)
            if change.section != QueueSection.name:
                continue
            fields = changed_fields(change.before, change.after)
            if fields & (ORDER | GROUPS):
                yield from reorder.follow(self.tenant, change.name, ranks=bool(fields & ORDER))
            if fields & _WAKES:
                self.core.wake_waiters()

    def _plan(self, engine: Engine, sections: dict[str, dict[str, Fields]], *, prune: bool) -> list[Plan]:
        plans: list[Plan] = []
        for section in SECTIONS:
            if section.name not in sections:
                continue
            wanted, stored = sections[section.name], section.stored(engine, self.tenant)
            found = [self._plan_one(engine, section, name, fields, stored.get(name)) for name, fields in wanted.items()]
            if prune:
                for name in sorted(stored.keys() - wanted.keys()):
                    if section.fields(name, stored[name]) is not None:
                        found.append(section.remove(engine, self, name, stored[name]))
            own = [plan for plan in found if plan is not None]
            if isinstance(section, DefinitionSection):
                section.check_room(len(stored), own)
            plans += own
        return plans

    def _plan_one(
        self, engine: Engine, section: Section, name: str, fields: Fields, document: Document | None
    ) -> Plan | None:
        place = text.below(section.name, name)
        try:
            return section.plan(engine, self, name, fields, document)
        except msgspec.ValidationError as error:
            raise InvalidConfig(f"{place:.150}: {error}", field=place + _path(str(error))) from None
        except (RecursionError, OverflowError) as error:
            raise InvalidConfig(f"{place:.150}: {error}", field=place) from None
        except TampuError as error:
            inner = _path(error.message) or (f".{error.field}" if error.field else "")
            known = re.split(r"[.\[]", inner.lstrip("."), maxsplit=1)[0] in fields
            raise type(error)(
                f"{place:.150}: {error.message}", field=place + (inner if known else ""), hint=error.hint
            ) from None

    def export_topology(self) -> Steps[dict[str, dict[str, Any]]]:
        """What is stored, as `apply_topology` takes it: applied to the same store it changes nothing.

        It has no secrets: of keys it has the names and grants.
        """
        return (yield Read(self._exported))  # type: ignore[no-any-return]  # typed by the call

    def _exported(self, engine: Engine) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for section in SECTIONS:
            stored = section.stored(engine, self.tenant)
            entries = {name: section.fields(name, stored[name]) for name in sorted(stored)}
            kept = {name: fields for name, fields in entries.items() if fields is not None}
            if kept:
                found[section.name] = kept
        return found


def topology_schema() -> dict[str, Any]:
    """The JSON Schema of topology files."""
    return json_schema(SECTIONS)


def checked(data: Any) -> dict[str, dict[str, Fields]]:
    """The sections of a topology, each with its entries. One without a value is empty."""
    if not isinstance(data, dict):
        raise InvalidConfig("a topology is a mapping of sections", hint=f"sections are {', '.join(_BY_NAME)}")
    found: dict[str, dict[str, Fields]] = {}
    for section, entries in data.items():
        if section not in _BY_NAME:
            raise InvalidConfig(
                f"no such section: {section!s:.100}", field=str(section), hint=f"sections are {', '.join(_BY_NAME)}"
            )
        if not isinstance(entries, dict | None):
            raise InvalidConfig(f"{section} must be a mapping of names", field=section)
        found[section] = {}
        for name, fields in (entries or {}).items():
            place = text.below(section, str(name))
            if not isinstance(name, str) or not isinstance(fields, dict | None):
                raise InvalidConfig(f"{place:.150} must be a mapping of fields", field=place)
            if not all(isinstance(field, str) for field in fields or ()):
                raise InvalidMessage(f"{place:.150}: names of fields must be texts", field=place)
            found[section][name] = fields or {}
    return found


def about_the_store(data: Any) -> bool:
    """True if a topology has definitions that are about the whole store, not only about the tenant."""
    sections = checked(data)
    for section in SECTIONS:
        if isinstance(section, DefinitionSection):
            for name, fields in sections.get(section.name, {}).items():
                with contextlib.suppress(TampuError):  # `apply_data` names the mistake
                    if section.kind.of_the_store(section.kind.made(name, {**section.kind.implied(name), **fields})):
                        return True
    return False


def _once(plans: Iterable[Plan]) -> list[PutDocument | DeleteDocument]:
    """The calls of all plans. Some share a document, such as the one that says that keys have changed."""
    calls: dict[tuple[str, str, str], PutDocument | DeleteDocument] = {}
    for plan in plans:
        for call in plan.calls:
            calls.setdefault((call.kind, call.tenant, call.name), call)
    return list(calls.values())


def _path(error: str) -> str:
    """Where msgspec found a mistake, such as ``.actions[0].copy``; empty if it does not say."""
    place, unknown = _PLACE.search(error), _UNKNOWN.search(error)
    return (place[1] if place else "") + (f".{unknown[1]}" if unknown else "")
