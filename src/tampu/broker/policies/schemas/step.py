"""The publish step that checks payloads against schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tampu.broker.plain_batch import PlainBatch
from tampu.broker.policies.schemas.validators import Validator, validator
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tampu.model.definitions import Schema, matches
from tampu.model.reasons import SCHEMA_INVALID

HEADER = "tampu-schema"
"""The header that tells workers which schemas a payload matched, as ``order@3``; several with commas."""


class _Checks(NamedTuple):
    """The schemas of a type of messages in a queue."""

    validators: list[tuple[Schema, Validator]]
    header: dict[str, str]


class SchemaStep:
    """Refuses messages whose payload does not match; in queues with ``on_invalid="dead"`` they become dead."""

    def wants(self, _queue: str, settings: Settings) -> bool:
        return bool(settings.schemas)

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        last: tuple[str, str] | None = None
        checks, dead = _NONE, False
        for draft in drafts:
            about = (draft.queue, draft.field("type"))
            if about != last:
                last, (queue, type) = about, about
                settings = batch.settings_of(queue)
                dead = settings.on_invalid == "dead"
                checks = _checks(settings, type)
            if checks.validators:
                payload = draft.payload
                for schema, check in checks.validators:
                    if not check.accepts(payload):
                        _refuse(draft, schema, check.fault(payload), dead=dead)
                        break
                else:
                    draft.add_headers(checks.header)

    def apply_plain(self, batch: PlainBatch) -> bool:
        checks = _checks(batch.settings, batch.type)
        if not all(check.accepts_all(batch.values) for _, check in checks.validators):
            return False
        if checks.validators:
            batch.pairs = [(checks.header, None)] * len(batch.raws)
        return True


_NONE = _Checks([], {})


def _checks(settings: Settings, type: str) -> _Checks:
    return settings.kept.get((_Checks, type)) or _compiled(settings, type)


def _compiled(settings: Settings, type: str) -> _Checks:
    schemas = [one for one in settings.schemas if matches(one.types, type)]
    header = {HEADER: ",".join(f"{schema.name}@{schema.version}" for schema in schemas)}
    made = settings.kept[_Checks, type] = _Checks([(schema, validator(schema)) for schema in schemas], header)
    return made


def _refuse(draft: Draft, schema: Schema, fault: tuple[str, str], *, dead: bool) -> None:
    path, why = fault
    if not dead:
        draft.refuse(f"{why} (schema {schema.name}, version {schema.version})", field=path)
    draft.end_dead(SCHEMA_INVALID, f"{why} ({path}; schema {schema.name} version {schema.version})")
