"""Grants of API keys in topology files, by the name of the key, or by its id if several keys have that name.

Keys are secrets: a file neither creates nor revokes one. Keys of all tenants are not part of any topology.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tampu.broker import key_documents
from tampu.broker.topology.sections import Fields, Plan, Section, plain
from tampu.engines.port import Document, Engine
from tampu.model.decoders import convert
from tampu.model.errors import InvalidConfig
from tampu.model.grants import Grant


class GrantsEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key may do. The key must exist: ``tampu keys create`` makes one, and shows its secret once."""

    grants: Annotated[tuple[Grant, ...], Meta(min_length=1, max_length=50)]


class GrantSection(Section):
    name = "keys"

    def stored(self, engine: Engine, tenant: str) -> dict[str, Document]:
        documents = engine.documents(key_documents.KIND, key_documents.TENANT)
        own = [(key, document) for document in documents if (key := key_documents.read(document)).tenant == tenant]
        names = Counter(key.name for key, _ in own)
        return {key.name if names[key.name] == 1 else key.id: document for key, document in own}

    def fields(self, name: str, document: Document) -> Fields | None:  # noqa: ARG002 - as others
        return _fields(key_documents.read(document).grants)

    def plan(
        self,
        engine: Engine,  # noqa: ARG002 - as others
        verbs: Any,  # noqa: ARG002
        name: str,
        fields: Fields,
        document: Document | None,
    ) -> Plan | None:
        wanted = convert(fields, GrantsEntry)
        if document is None:
            raise InvalidConfig(
                f"no single key has the name {name:.100}",
                hint="create it with tampu keys create; if several keys have this name, use their ids",
            )
        old = key_documents.read(document)
        if old.grants == wanted.grants:
            return None
        calls = key_documents.with_grants(document, wanted.grants)
        change = self.changed(name, _fields(old.grants), _fields(wanted.grants))
        return Plan(change, "key.grants", list(calls))

    def remove(self, engine: Engine, verbs: Any, name: str, document: Document) -> Plan | None:  # noqa: ARG002
        return None

    def schema(self) -> tuple[Any, set[str]]:
        return GrantsEntry, set()


def _fields(grants: tuple[Grant, ...]) -> Fields:
    return {"grants": [plain(grant) for grant in grants]}
