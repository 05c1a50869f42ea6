"""The verbs of erasure: erase, and get, list and check erasures.

Messages are found by looking at all of them, in pages: no index has labels or payloads. One that moves while its queue
is read may be missed, so all queues are read again until nothing was removed. Each page is a commit of its own. If the
caller dies, maintenance goes on (`go_on_erasing`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from tampu.broker import notes, validate
from tampu.broker.audit import Recording
from tampu.broker.core import Core, Read, Steps
from tampu.broker.erasure import stored
from tampu.broker.erasure.stored import StoredErasure
from tampu.broker.policies.holds.verbs import holds_of
from tampu.broker.policies.reviews import stored as reviews
from tampu.broker.schedules import stored as schedules
from tampu.engines.port import Cancel, DeleteDocument, Document, Engine, Page, Remove, Together
from tampu.model.definitions import Hold
from tampu.model.erasure import Erasure, Subject
from tampu.model.errors import InvalidMessage, NotFound
from tampu.model.message import Message, State, unpack_body
from tampu.model.times import moment

_STEP = 100
_PASSES = 20
_MOST_TEXT = 2048
_MOST_HELD = 1000
"""Ids in a report, for each hold."""


class ErasureVerbs(Recording):
    def __init__(self, core: Core, tenant: str) -> None:
        self.core = core
        self.tenant = tenant

    def erase(
        self,
        *,
        label: tuple[str, str] | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        path: tuple[str, str] | None = None,
        dry_run: bool = False,
    ) -> Steps[Erasure]:
        """Remove all messages of a subject for good, in every queue and state, with their history and results, and the
        schedules that would publish more.

        Give one of ``label=("user", "42")``, ``key``, ``correlation_id`` or ``path=("payload.user.id", "42")``. Leased
        messages are asked to stop, and removed when they have ended. What a legal hold covers stays, and is named. It
        reads all messages of the tenant, in pages. If this process dies, maintenance goes on.
        """
        subject = checked(label, key, correlation_id, path)
        now: int = yield Read(lambda engine: engine.now())
        if dry_run:
            return (yield from self._preview_erasure(subject, now))
        id = str(uuid.uuid4())
        begun = StoredErasure(subject, self.actor.name, now, now)
        yield from self.recorded(stored.writing(self.tenant, id, begun), "erasure.begin", id, None, subject)
        return (yield from self.go_on_erasing(id))

    def go_on_erasing(self, id: str) -> Steps[Erasure]:
        """Remove what can be removed now; the erasure has ended if nothing is left."""
        found = yield from self._erasure_document(id)
        erasure = stored.read(found.value)
        leased: list[str] = []
        held: dict[str, list[str]] = {}
        for _ in range(_PASSES):
            leased, held, removed = [], {}, 0
            queues: list[str] = yield Read(self._queues_to_erase)
            holds: list[Hold] = yield Read(lambda engine: holds_of(engine, self.tenant))
            erasure = yield from self._erase_schedules(id, erasure, holds, held)
            for queue, state in _places(queues):
                removed += yield from self._erase_place(id, erasure, queue, state, holds, leased, held)
            if not removed:
                break
        now: int = yield Read(lambda engine: engine.now())
        done = msgspec.structs.replace(
            erasure,
            moved_us=now,
            leased=tuple(leased),
            held={name: tuple(ids[:_MOST_HELD]) for name, ids in held.items()},
            ended_us=None if leased else now,
        )
        calls = stored.writing(self.tenant, id, done)
        if leased:
            yield Together(self.tenant, calls)
        else:
            yield from self.recorded(calls, "erasure.end", id, None, {"held": {n: len(i) for n, i in held.items()}})
        return (yield from self.get_erasure(id))

    def _erase_schedules(
        self, id: str, erasure: StoredErasure, holds: list[Hold], held: dict[str, list[str]]
    ) -> Steps[StoredErasure]:
        """Delete the schedules whose messages would be the subject's. Their names are stored first."""
        found = yield from self._schedules_of(erasure.subject, holds, held)
        if not found:
            return erasure
        names = dict.fromkeys((*erasure.schedules, *(document.name for document in found)))
        erasure = msgspec.structs.replace(erasure, schedules=tuple(names))
        yield Together(self.tenant, stored.writing(self.tenant, id, erasure))
        for document in found:
            calls = [DeleteDocument(schedules.KIND, self.tenant, document.name)]
            yield from self.recorded(calls, "schedule.delete", document.name, None, {"erasure": id})
        return erasure

    def _schedules_of(self, subject: Subject, holds: list[Hold], held: dict[str, list[str]]) -> Steps[list[Document]]:
        documents: list[Document] = yield Read(lambda engine: engine.documents(schedules.KIND, self.tenant))
        found = []
        for document in documents:
            one = schedules.read(document)
            body = unpack_body(one.body)
            sample = Message(document.name, self.tenant, one.queue, State.DELAYED, body, 0, 1, one.created_us)
            if subject.matches(sample):
                hold = next((each for each in holds if each.covers(sample)), None)
                if hold is None:
                    found.append(document)
                else:
                    held.setdefault(hold.name, []).append(f"schedule {document.name}")
        return found

    def _erase_place(
        self,
        id: str,
        erasure: StoredErasure,
        queue: str,
        state: State,
        holds: list[Hold],
        leased: list[str],
        held: dict[str, list[str]],
    ) -> Steps[int]:
        """Erase in one state of a queue. Returns how many messages were removed."""
        after, total = None, 0
        while True:
            page: Page | None = yield Read(
                lambda e, a=after: e.page(self.tenant, queue, state, a, _STEP)  # type: ignore[misc]  # bound now
            )
            if page is None:
                return total
            found = _of(erasure.subject, page, holds, held)
            if state is State.LEASED:
                leased += [message.id for message in found]
                new = [message.id for message in found if not message.cancel_requested]
                if new:
                    yield Cancel(self.tenant, new, reason="erased", actor=erasure.actor)
            elif found:
                total += yield from self._erase_messages(id, erasure, found)
            if page.cursor is None:
                return total
            after = page.cursor

    def _erase_messages(self, id: str, erasure: StoredErasure, messages: list[Message]) -> Steps[int]:
        now: int = yield Read(lambda engine: engine.now())
        yield stored.part(self.tenant, id, now, messages)
        yield Together(self.tenant, stored.writing(self.tenant, id, msgspec.structs.replace(erasure, moved_us=now)))
        outcomes = yield Remove(self.tenant, [message.id for message in messages], erasure.actor)
        for outcome in outcomes:
            if outcome.ok:
                yield DeleteDocument(notes.KIND, self.tenant, outcome.id)
                yield DeleteDocument(reviews.KIND, self.tenant, outcome.id)
        return sum(outcome.ok for outcome in outcomes)

    def _preview_erasure(self, subject: Subject, now: int) -> Steps[Erasure]:
        removed: dict[str, dict[str, int]] = {}
        held: dict[str, list[str]] = {}
        ids: list[str] = []
        leased: list[str] = []
        holds: list[Hold] = yield Read(lambda engine: holds_of(engine, self.tenant))
        for queue, state in _places((yield Read(self._queues_to_erase))):
            after = None
            while True:
                page: Page | None = yield Read(
                    lambda e, q=queue, s=state, a=after: e.page(self.tenant, q, s, a, _STEP)  # type: ignore[misc]  # bound now
                )
                if page is None:
                    break
                found = [message.id for message in _of(subject, page, holds, held)]
                if found and state is State.LEASED:
                    leased += found
                elif found:
                    ids += found
                    of_queue = removed.setdefault(queue, {})
                    of_queue[state] = of_queue.get(state, 0) + len(found)
                if page.cursor is None:
                    break
                after = page.cursor
        named = yield from self._schedules_of(subject, holds, held)
        return Erasure(
            id="", subject=subject, status="done", started_at=moment(now), removed=removed, ids=ids, leased=leased,
            held=held, schedules=[document.name for document in named], dry_run=True,
        )  # fmt: skip

    def _queues_to_erase(self, engine: Engine) -> list[str]:
        return [name for tenant, name in engine.queues() if tenant == self.tenant]

    def get_erasure(self, id: str) -> Steps[Erasure]:
        """The report of an erasure: what was removed, what is still leased, what a hold keeps."""
        found = yield from self._erasure_document(id)
        return (yield Read(lambda engine: stored.view(engine, self.tenant, found)))  # type: ignore[no-any-return]  # typed by the call

    def _erasure_document(self, id: str) -> Steps[Document]:
        name = validate.id_text(id)
        found: Document | None = yield Read(lambda engine: engine.document(stored.KIND, self.tenant, name))
        if found is None:
            raise NotFound(f"no erasure {name}", field="id", hint="see tampu erasure list")
        return found

    def list_erasures(self) -> Steps[list[Erasure]]:
        """All erasures, the oldest first."""
        found: list[Document] = yield Read(lambda engine: engine.documents(stored.KIND, self.tenant))
        reports: list[Erasure] = yield Read(lambda engine: [stored.view(engine, self.tenant, one) for one in found])
        return sorted(reports, key=lambda one: one.started_at)

    def check_erasure(self, id: str) -> Steps[Erasure]:
        """What there is of the subject now, as a preview of erasing it again: nothing, if all is gone."""
        erasure = yield from self.get_erasure(id)
        subject = erasure.subject
        found = yield from self.erase(
            label=subject.label, key=subject.key, correlation_id=subject.correlation_id, path=subject.path, dry_run=True
        )
        return msgspec.structs.replace(found, id=erasure.id)


def _places(queues: list[str]) -> Iterator[tuple[str, State]]:
    return ((queue, state) for queue in queues for state in State)


def _of(subject: Subject, page: Page, holds: list[Hold], held: dict[str, list[str]]) -> list[Message]:
    """The messages of a page that are the subject's, without those that a hold covers."""
    found = []
    for message in page.messages:
        if subject.matches(message):
            hold = next((one for one in holds if one.covers(message)), None)
            if hold is None:
                found.append(message)
            else:
                held.setdefault(hold.name, []).append(message.id)
    return found


def checked(label: Any, key: Any, correlation_id: Any, path: Any) -> Subject:
    """Whose messages, from what users pass."""
    given = {"label": label, "key": key, "correlation_id": correlation_id, "path": path}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        raise InvalidMessage(f"give one of {', '.join(given)}", field="label", hint='such as label=("user", "42")')
    ((name, value),) = named.items()
    if name == "key":
        return Subject(key=validate.text(value, name, _MOST_TEXT))
    if name == "correlation_id":
        return Subject(correlation_id=validate.text(value, name, _MOST_TEXT))
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidMessage(f"{name} is a name and a value", field=name, hint='such as ("user", "42")')
    first, second = (validate.text(one, name, _MOST_TEXT) for one in value)
    if name == "path" and (not first.startswith("payload.") or "" in first.split(".")):
        raise InvalidMessage("a path begins with payload", field="path", hint="such as payload.user.id")
    return Subject(label=(first, second)) if name == "label" else Subject(path=(first, second))
