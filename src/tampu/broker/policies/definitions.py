"""Definitions of policies: documents with a name and a version, put, read, listed and deleted alike for every kind.

A kind is an instance of `Kind`, in the list of `kinds`. The library, the server and the client handle all kinds with
the code here, so a new kind needs its struct, its `Kind`, and its verbs with their own signatures.

All definitions of a tenant are documents of one kind, so that `tampu.broker.settings` reads them at once.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from tampu.broker import validate
from tampu.broker.audit import Recording
from tampu.broker.core import Read, Steps
from tampu.broker.policies import uses
from tampu.engines.port import DeleteDocument, Document, Engine, PutDocument
from tampu.model import patterns
from tampu.model.decoders import convert, from_json
from tampu.model.definitions import Definition
from tampu.model.errors import InvalidConfig, NotFound, PayloadTooLarge, VersionConflict

D = TypeVar("D", bound=Definition)
DOCUMENT = "definition"
_OLD = "definition_version"
"""Kind of the documents with earlier versions, for kinds that keep them."""
_REMOVED = "definition_removed"
"""Kind of the documents that say which defaults a tenant has deleted."""
MOST = 1000
"""Definitions of one kind in a tenant."""
MOST_BYTES = 64 * 1024
_TRIES = 20


class Kind(Generic[D]):
    """A kind of definition. Subclasses say what is checked, and what follows from a change."""

    word: str
    """As in ``schema``: its name in errors, in the audit trail and in the command."""
    plural: str
    """As in ``schemas``: its name in paths and in the library."""
    struct: type[D]
    keeps_versions = False
    """True if earlier versions can still be read."""
    defaults: tuple[D, ...] = ()
    """Definitions that every tenant has until it changes or deletes them."""

    def check(self, definition: D) -> D:
        """The definition as it is stored; raises `InvalidConfig` if it cannot be used."""
        return definition

    def check_change(self, old: D, new: D) -> None:
        """Raise if ``new`` must not follow ``old``."""

    def places(self, _definition: D) -> tuple[str, ...]:
        """Patterns of the queues that it is about: who may view or change it depends on them."""
        return ("*",)

    def marks(self, _definition: D) -> tuple[tuple[str, str], ...]:
        """Kinds and tenants of documents by which maintenance knows that the tenant has such definitions."""
        return ()

    def of_the_store(self, _definition: D) -> bool:
        """True if it is about the whole store: on a server it is only for keys of all tenants."""
        return False

    def follower(self, _definition: D) -> str | None:
        """The name of the follower that acts by it, if it needs one: the follower begins when the first is stored,
        and ends when the last is deleted."""
        return None

    def implied(self, _name: str) -> dict[str, Any]:
        """Fields that follow from the name: files of a topology do not have them."""
        return {}

    def beginning(self, _tenant: str, _definition: D) -> list[PutDocument]:
        """What is stored with a new definition."""
        return []

    def afterwards(self, _verbs: Recording, _definition: D) -> Steps[None]:
        """What is done after each put, also one that changes nothing."""
        yield from ()

    # -- for who stores them

    def document_name(self, name: str) -> str:
        return f"{self.word}:{validate.name(name, self.word)}"

    def made(self, name: str, fields: dict[str, Any]) -> D:
        """A definition from what users pass, checked."""
        try:
            made = convert({**fields, "name": validate.name(name, self.word), "version": 0}, self.struct)
        except msgspec.ValidationError as error:
            text = str(error)
            field = text.rpartition("`$.")[2].rstrip("`") if "`$." in text else None
            raise InvalidConfig(f"{self.word} {name}: {text}", field=field) from None
        if len(msgspec.json.encode(made)) > MOST_BYTES:
            raise PayloadTooLarge(f"a {self.word} has at most {MOST_BYTES} bytes", field=self.word)
        return self.check(made)

    def read(self, document: Document) -> D:
        return from_json(self.struct).decode(document.value)


def texts(value: str | list[str] | tuple[str, ...] | None, field: str) -> tuple[str, ...]:
    """Patterns as users pass them: one, or several."""
    given = (value,) if isinstance(value, str) else tuple(value or ())
    for one in given:
        if not isinstance(one, str) or not one:
            raise InvalidConfig(f"{field} must be a pattern or a list of patterns", field=field)
        patterns.parse(one, field)
    return given


class DefinitionVerbs(Recording):
    """Put, get, list and delete, for every kind."""

    def put_definition(self, kind: Kind[D], definition: D) -> Steps[D]:
        """Store a definition; the same again changes nothing. Returns it with its version."""
        stored = yield from self._store(kind, definition)
        yield from kind.afterwards(self, stored)
        return stored

    def _store(self, kind: Kind[D], definition: D) -> Steps[D]:
        name = kind.document_name(definition.name)
        for _ in range(_TRIES):
            document: Document | None = yield Read(lambda e: e.document(DOCUMENT, self.tenant, name))
            old = None if document is None else kind.read(document)
            version: int = (yield Read(lambda e: newest(e, self.tenant, kind, name))) if old is None else old.version
            new = msgspec.structs.replace(definition, version=version + 1)
            if old is None:
                yield from self._check_room(kind)
            elif msgspec.structs.replace(new, version=old.version) == old:
                return old
            else:
                kind.check_change(old, new)
            calls = calls_to_put(self.tenant, kind, document, new)
            needed = [(None if old is None else kind.follower(old), kind.follower(new))]
            calls += yield Read(lambda e: uses.changes(e, self.tenant, needed))  # noqa: B023 - read at once
            try:
                yield from self.recorded(calls, f"{kind.word}.put", definition.name, old, new)
            except VersionConflict:
                continue
            self.core.settings.forget()
            return new
        raise VersionConflict(f"{kind.word} {definition.name} keeps changing", hint="try again")

    def _check_room(self, kind: Kind[D]) -> Steps[None]:
        there: list[Document] = yield Read(lambda e: e.documents(DOCUMENT, self.tenant, f"{kind.word}:"))
        if len(there) >= MOST:
            raise InvalidConfig(
                f"there are {MOST} {kind.plural} already", field="name", hint="delete those that are not used"
            )

    def get_definition(self, kind: Kind[D], name: str, version: int | None = None) -> Steps[D]:
        """A definition as it is now, or an earlier version of it."""
        wanted = kind.document_name(name)
        document: Document | None = yield Read(lambda e: e.document(DOCUMENT, self.tenant, wanted))
        found = None if document is None else kind.read(document)
        if version is not None and (found is None or found.version != version):
            validate.whole(version, "version", 1, 1 << 53)
            document = yield Read(lambda e: e.document(_OLD, self.tenant, f"{wanted}@{version}"))
            found = None if document is None else kind.read(document)
        if found is None and version is None:
            found = next((one for one in (yield from self._defaults(kind)) if one.name == name), None)
        if found is None:
            which = name if version is None else f"{name} of version {version}"
            raise NotFound(f"no {kind.word} {which}", field="name", hint=f"see tampu {kind.word} list")
        return found

    def list_definitions(self, kind: Kind[D]) -> Steps[list[D]]:
        """All definitions of a kind, by name."""
        found: list[Document] = yield Read(lambda e: e.documents(DOCUMENT, self.tenant, f"{kind.word}:"))
        stored = {document.name for document in found}
        defaults = [one for one in (yield from self._defaults(kind)) if kind.document_name(one.name) not in stored]
        return sorted([*map(kind.read, found), *defaults], key=lambda one: one.name)

    def _defaults(self, kind: Kind[D]) -> Steps[list[D]]:
        if not kind.defaults:
            return []
        found: list[D] = yield Read(lambda engine: defaults_of(engine, self.tenant, kind))
        return found

    def delete_definition(self, kind: Kind[D], name: str) -> Steps[bool]:
        """Delete a definition; false if there was none. Earlier versions stay readable where they are kept."""
        wanted = kind.document_name(name)
        for _ in range(_TRIES):
            document: Document | None = yield Read(lambda e: e.document(DOCUMENT, self.tenant, wanted))
            default = next((one for one in (yield from self._defaults(kind)) if one.name == name), None)
            if document is None and default is None:
                return False
            old = default if document is None else kind.read(document)
            assert old is not None
            needed = [(None if document is None else kind.follower(old), None)]
            calls: list[Any] = [DeleteDocument(DOCUMENT, self.tenant, wanted), *_kept(self.tenant, kind, old)]
            if default is not None:
                calls.append(PutDocument(_REMOVED, self.tenant, wanted, b"{}"))
            calls += yield Read(lambda e: uses.changes(e, self.tenant, needed))  # noqa: B023 - read at once
            try:
                gone, *_ = yield from self.recorded(calls, f"{kind.word}.delete", name, old)
            except VersionConflict:
                continue
            self.core.settings.forget()
            return bool(gone) or default is not None
        raise VersionConflict(f"{kind.word} {name} keeps changing", hint="try again")


def defaults_of(engine: Engine, tenant: str, kind: Kind[D]) -> list[D]:
    """The defaults of a kind that a tenant has not deleted."""
    if not kind.defaults:
        return []
    removed = {document.name for document in engine.documents(_REMOVED, tenant, f"{kind.word}:")}
    return [one for one in kind.defaults if kind.document_name(one.name) not in removed]


def current(engine: Engine, tenant: str, kind: Kind[D]) -> list[D]:
    """All definitions of a kind that a tenant has, with the defaults."""
    found = {one.name: one for one in defaults_of(engine, tenant, kind)}
    for document in engine.documents(DOCUMENT, tenant, f"{kind.word}:"):
        one = kind.read(document)
        found[one.name] = one
    return list(found.values())


def newest(engine: Engine, tenant: str, kind: Kind[Any], name: str) -> int:
    """The last version of a definition that was deleted; 0 if there was none."""
    if not kind.keeps_versions:
        return 0
    there = engine.documents(_OLD, tenant, f"{name}@")
    return max((int(document.name.rpartition("@")[2]) for document in there), default=0)


def calls_to_put(tenant: str, kind: Kind[D], document: Document | None, new: D) -> list[PutDocument | DeleteDocument]:
    """The calls that store a definition, if ``document`` is still what is stored of it."""
    name = kind.document_name(new.name)
    version = 0 if document is None else document.version
    calls: list[PutDocument | DeleteDocument] = [PutDocument(DOCUMENT, tenant, name, _stored(new), version)]
    calls += [PutDocument(mark, owner, tenant, b"{}") for mark, owner in kind.marks(new)]
    return calls + (kind.beginning(tenant, new) if document is None else _kept(tenant, kind, kind.read(document)))


def calls_to_delete(
    tenant: str, kind: Kind[Any], document: Document, *, version: int | None = None
) -> list[PutDocument | DeleteDocument]:
    """The calls that delete a definition; with ``version`` only if it still has that one."""
    return [DeleteDocument(DOCUMENT, tenant, document.name, version), *_kept(tenant, kind, kind.read(document))]


def _kept(tenant: str, kind: Kind[D], old: D) -> list[PutDocument]:
    """The call that keeps a version which is no longer the current one."""
    if not kind.keeps_versions:
        return []
    return [PutDocument(_OLD, tenant, f"{kind.document_name(old.name)}@{old.version}", _stored(old))]


def _stored(definition: Definition) -> bytes:
    return msgspec.json.encode(definition)
