"""Sections of a topology file. Each says what is stored, and which calls make the store as the file says."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tampu.broker import settings, validate
from tampu.broker.admin import reorder
from tampu.broker.admin.verbs import check_dead_letter_to, needed_follower
from tampu.broker.policies.definitions import DOCUMENT, MOST, Kind, calls_to_delete, calls_to_put, newest
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.model.config import SYSTEM, QueueConfig, change, read_config
from tampu.model.errors import InvalidConfig
from tampu.model.topology import TopologyChange

Fields = dict[str, Any]
"""An entry of a file: its fields, as in YAML."""
ORDER = frozenset({"ordering", "ageing"})
GROUPS = frozenset({"group_order", "group_concurrency", "group_rate", "group_burst"})


def plain(struct: msgspec.Struct) -> Fields:
    """A struct as a file has it: values of JSON, without defaults."""
    found: Fields = {}
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.required or value != default:
            found[field.encode_name] = msgspec.json.decode(msgspec.json.encode(value))
    return found


class Plan(NamedTuple):
    """A change, and the calls that make it."""

    change: TopologyChange
    action: str
    """In the audit trail."""
    calls: list[PutDocument | DeleteDocument]
    due_us: int | None = None
    """When a schedule is due then."""
    needed: tuple[str | None, str | None] = (None, None)
    """The follower that a definition needed, and the one that it needs now."""


class Section:
    name: str

    def stored(self, engine: Engine, tenant: str) -> dict[str, Document]:
        """The documents of the section, by the name that a file has for each."""
        raise NotImplementedError

    def fields(self, name: str, document: Document) -> Fields | None:
        """An entry as an export has it; None if it is not part of a topology."""
        raise NotImplementedError

    def plan(self, engine: Engine, verbs: Any, name: str, fields: Fields, document: Document | None) -> Plan | None:
        """The change that makes an entry as the file says; None if it is so."""
        raise NotImplementedError

    def remove(self, engine: Engine, verbs: Any, name: str, document: Document) -> Plan | None:
        """The change that removes an entry which the file does not have; None if the section removes nothing."""
        raise NotImplementedError

    def schema(self) -> tuple[Any, set[str]]:
        """The struct of an entry, and its fields that are not in a file."""
        raise NotImplementedError

    def changed(self, name: str, before: Fields | None, after: Fields | None) -> TopologyChange:
        action: Any = "create" if before is None else "delete" if after is None else "change"
        return TopologyChange(self.name, name, action, before, after)


class QueueSection(Section):
    """Settings of queues, of scopes such as ``shop.*``, and of all queues (``*``).

    The status of a queue is what operators do, so an export does not have it, and a file without it leaves it alone.
    """

    name = "queues"

    def stored(self, engine: Engine, tenant: str) -> dict[str, Document]:
        found = engine.documents(settings.KIND, tenant)
        return {document.name: document for document in found if not document.name.startswith(SYSTEM)}

    def fields(self, name: str, document: Document) -> Fields | None:  # noqa: ARG002 - as others
        fields = plain(read_config(document.value))
        status = fields.pop("status", None)
        return None if status is not None and not fields else fields

    def plan(self, engine: Engine, verbs: Any, name: str, fields: Fields, document: Document | None) -> Plan | None:
        validate.queue_or_scope(name)
        old = None if document is None else read_config(document.value)
        if fields.get("dead_letter_to"):
            check_dead_letter_to(name, fields["dead_letter_to"])
        new = change(QueueConfig(status=None if old is None else old.status), fields)
        if new == old:
            return None
        calls: list[PutDocument | DeleteDocument] = [
            PutDocument(
                settings.KIND, verbs.tenant, name, msgspec.json.encode(new), document.version if document else 0
            )
        ]
        calls += _marks(engine, verbs.tenant, name, old or QueueConfig(), new)
        before = None if old is None else plain(old)
        needed = (needed_follower(old), needed_follower(new))
        return Plan(self.changed(name, before, plain(new)), "queue.config", calls, needed=needed)

    def remove(self, engine: Engine, verbs: Any, name: str, document: Document) -> Plan | None:
        old = read_config(document.value)
        new = QueueConfig(status=old.status)
        calls: list[PutDocument | DeleteDocument]
        if old.status is None:
            calls = [DeleteDocument(settings.KIND, verbs.tenant, name, document.version)]
        else:
            calls = [PutDocument(settings.KIND, verbs.tenant, name, msgspec.json.encode(new), document.version)]
        calls += _marks(engine, verbs.tenant, name, old, new)
        return Plan(self.changed(name, plain(old), None), "queue.reset", calls, needed=(needed_follower(old), None))

    def schema(self) -> tuple[Any, set[str]]:
        return QueueConfig, set()


def changed_fields(before: Fields | None, after: Fields | None) -> set[str]:
    before, after = before or {}, after or {}
    return {field for field in before | after if before.get(field) != after.get(field)}


def _marks(engine: Engine, tenant: str, name: str, old: QueueConfig, new: QueueConfig) -> list[PutDocument]:
    """The mark of a queue whose waiting messages get another rank or slot: maintenance goes on if this process dies."""
    fields = changed_fields(plain(old), plain(new))
    if not fields & (ORDER | GROUPS):
        return []
    ranks = bool(fields & ORDER) or reorder.is_ranking(engine, tenant, name)
    return [reorder.marking(tenant, name, engine.now(), ranks=ranks)]


class DefinitionSection(Section):
    """The definitions of one kind."""

    def __init__(self, kind: Kind[Any]) -> None:
        self.kind = kind
        self.name = kind.plural

    def stored(self, engine: Engine, tenant: str) -> dict[str, Document]:
        prefix = f"{self.kind.word}:"
        return {found.name.removeprefix(prefix): found for found in engine.documents(DOCUMENT, tenant, prefix)}

    def fields(self, name: str, document: Document) -> Fields | None:
        return self._shown(name, self.kind.read(document))

    def _shown(self, name: str, definition: Any) -> Fields:
        hidden = {"name", "version", *self.kind.implied(name)}
        return {field: value for field, value in plain(definition).items() if field not in hidden}

    def plan(self, engine: Engine, verbs: Any, name: str, fields: Fields, document: Document | None) -> Plan | None:
        kind = self.kind
        for field in ("name", "version"):
            if field in fields:
                raise InvalidConfig(f"a {kind.word} in a file has no {field}", field=field, hint="leave it out")
        made = kind.made(name, {**kind.implied(name), **fields})
        old = None if document is None else kind.read(document)
        version = newest(engine, verbs.tenant, kind, kind.document_name(name)) if old is None else old.version
        new = msgspec.structs.replace(made, version=version + 1)
        if old is not None:
            if msgspec.structs.replace(new, version=old.version) == old:
                return None
            kind.check_change(old, new)
        calls = calls_to_put(verbs.tenant, kind, document, new)
        before = None if old is None else self._shown(name, old)
        needed = (None if old is None else kind.follower(old), kind.follower(new))
        return Plan(self.changed(name, before, self._shown(name, new)), f"{kind.word}.put", calls, needed=needed)

    def remove(self, engine: Engine, verbs: Any, name: str, document: Document) -> Plan | None:  # noqa: ARG002
        calls = calls_to_delete(verbs.tenant, self.kind, document, version=document.version)
        needed = (self.kind.follower(self.kind.read(document)), None)
        change = self.changed(name, self.fields(name, document), None)
        return Plan(change, f"{self.kind.word}.delete", calls, needed=needed)

    def schema(self) -> tuple[Any, set[str]]:
        return self.kind.struct, {"name", "version", *self.kind.implied("queue@subscriber")}

    def check_room(self, stored: int, plans: list[Plan]) -> None:
        there = stored + sum({"create": 1, "delete": -1}.get(plan.change.action, 0) for plan in plans)
        if there > MOST:
            raise InvalidConfig(f"there would be {there} {self.name}; the limit is {MOST}", field=self.name)
