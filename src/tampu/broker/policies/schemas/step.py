"""The publish step that checks payloads against schemas."""

from __future__ import annotations

from collections.abc import Sequence

from tampu.broker.policies.schemas.validators import validator
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.model.definitions import Schema, matches
from tampu.model.reasons import SCHEMA_INVALID

HEADER = "tampu-schema"
"""The header that tells workers which schemas a payload matched, as ``order@3``; several with commas."""


class SchemaStep:
    """Refuses messages whose payload does not match; in queues with ``on_invalid="dead"`` they become dead."""

    def wants(self, _queue: str, settings: Settings) -> bool:
        return bool(settings.schemas)

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            settings = batch.settings_of(draft.queue)
            schemas = [one for one in settings.schemas if matches(one.types, draft.message.type or "")]
            if schemas:
                self._check(draft, schemas, dead=settings.on_invalid == "dead")

    def _check(self, draft: Draft, schemas: Sequence[Schema], *, dead: bool) -> None:
        payload = draft.payload
        for schema in schemas:
            fault = validator(schema).fault(payload)
            if fault is not None:
                path, why = fault
                text = f"{why} ({path}; schema {schema.name} version {schema.version})"
                if not dead:
                    draft.refuse(f"{why} (schema {schema.name}, version {schema.version})", field=path)
                draft.end_dead(SCHEMA_INVALID, text)
                return
        seen = ",".join(f"{schema.name}@{schema.version}" for schema in schemas)
        draft.change(headers={**(draft.message.headers or {}), HEADER: seen})
