"""What takes a shorter way in is stored, and refused, as what takes the common one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tampu
from tampu import Ack, Nack, NewMessage
from tampu.broker import access, validate
from tampu.broker.settings import resolve
from tampu.model.config import BUILT_IN
from tampu.model.errors import TampuError
from tampu.model.outcome import Settlement

ID = "01a1e3ce-0a3e-7000-8021-b42987946ea3"
SETTINGS = resolve(BUILT_IN)


def _outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except TampuError as error:
        return type(error), error.message, error.field


@pytest.mark.parametrize(
    "new",
    [
        NewMessage(b"x"),
        NewMessage(b"x", id=ID),
        NewMessage(b"x", id=ID.upper()),
        NewMessage(b"x", id=ID.replace("-", "")),
        NewMessage(b"x", id=ID + "\n"),
        NewMessage(b"x", id=ID + "0"),
        NewMessage(b"x", id=7),  # type: ignore[arg-type]  # it is refused
        NewMessage({"n": 1}, type="a.b", id=ID),
        NewMessage(b"{}", content_type="application/json", type="message"),
        NewMessage(b"x", content_type="image/png"),
        NewMessage(b"x", content_type="no type"),
        NewMessage(b"x", content_type=["application/json"]),  # type: ignore[arg-type]  # it is refused
        NewMessage("x", content_type="text/plain"),
        NewMessage("x", content_type="application/octet-stream"),
        NewMessage(object()),
        NewMessage(b"x" * (SETTINGS.max_payload + 1), content_type="application/octet-stream", id=ID),
        NewMessage(b"x", type="no type"),
        NewMessage(b"x", type=5),  # type: ignore[arg-type]  # it is refused
        NewMessage(b"x", priority=False),
        NewMessage(b"x", priority=0.0),  # type: ignore[arg-type]  # it is refused
        NewMessage(b"x", priority=-0),
        NewMessage(b"x", labels={}),
        NewMessage(b"x", hold=""),
        NewMessage(b"x", max_attempts=0),
        NewMessage(b"x", delay=0),
        NewMessage(b"x", group="g"),
    ],
)
def test_a_plain_message_is_taken_or_refused_as_any_other(new: NewMessage, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = _outcome(lambda: validate.item("jobs", SETTINGS, new))
    monkeypatch.setattr(validate, "_has_no_options", lambda _new: False)
    monkeypatch.setattr(validate, "_USUAL", frozenset())
    assert quick == _outcome(lambda: validate.item("jobs", SETTINGS, new))


@pytest.mark.parametrize(
    "lease",
    ["jobs/2.3", "jobs/", "jobs", "/", "/2.3", "", "jobs//2.3", "jobs/2/3.4", "other/2.3", "jobs/" + "x" * 508, 7],
    ids=lambda lease: repr(lease)[:20],
)
@pytest.mark.parametrize("before", ["jobs/1.1", "other/1.1", None])
def test_acks_of_a_batch_are_read_as_each_by_itself(lease: Any, before: str | None) -> None:
    with tampu.open("memory://", maintenance=False) as store:
        verbs = access.verbs(store)
        batch: list[Settlement]
        batch = [Nack(before, "no"), Ack(before), Ack(lease), Ack(lease, 1)] if before else [Ack(lease), Ack(lease)]

        def plainly() -> Any:
            return [(ending.verb, ending.queue, ending.receipt, ending.result) for ending in map(verbs._ending, batch)]

        def together() -> Any:
            return [(e.verb, e.queue, e.receipt, e.result) for e in verbs._endings(batch)]

        assert _outcome(together) == _outcome(plainly)
