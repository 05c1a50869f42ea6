"""Erasure over HTTP. The server goes on if the connection breaks: `erasures.list` then has the report."""

from __future__ import annotations

from tampu.broker import validate
from tampu.broker.core import Steps
from tampu.broker.erasure.verbs import ErasureVerbs, checked
from tampu.client.request import call, reader
from tampu.model.erasure import Erasure
from tampu.wire.erasure import Erase, Erasures

_READ_ERASURE = reader(Erasure)
_READ_ERASURES = reader(Erasures, lambda reply: reply.erasures)


class RemoteErasureVerbs(ErasureVerbs):
    def erase(
        self,
        *,
        label: tuple[str, str] | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        path: tuple[str, str] | None = None,
        dry_run: bool = False,
    ) -> Steps[Erasure]:
        subject = checked(label, key, correlation_id, path)
        body = Erase(subject.label, subject.key, subject.correlation_id, subject.path, dry_run)
        return (yield from call("POST", "/v1/erasures", _READ_ERASURE, body, repeat=dry_run))

    def get_erasure(self, id: str) -> Steps[Erasure]:
        return (yield from call("GET", f"/v1/erasures/{validate.id_text(id)}", _READ_ERASURE))

    def list_erasures(self) -> Steps[list[Erasure]]:
        return (yield from call("GET", "/v1/erasures", _READ_ERASURES))

    def check_erasure(self, id: str) -> Steps[Erasure]:
        path = f"/v1/erasures/{validate.id_text(id)}/check"
        return (yield from call("POST", path, _READ_ERASURE, repeat=True))
