"""Bad receipts, ids, cursors, filters and positions: an error with a stable code, and nothing changed."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

import tampu
from tampu import Nack, TampuError, Where
from tampu.broker.queue import Queue
from tampu.model.message import Lease
from tests.conformance.house import House

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - naive on purpose
GARBAGE: list[Any] = [
    "", "x", "emails", "emails/", "emails/zz.zz", "emails/1", "emails/1.", "/1.1", "emails/-1.1", "größe/1.1",
    "emails/1.1\n", "a b/1.1", "x" * 600, None, 3, b"emails/1.1", ["emails/1.1"], "\ud800/1.1",
    "emails/ffffffffffffffff.1", "emails/1.ffffffffffffffff", "emails/11111111111111111.1", object(),
]  # fmt: skip


@pytest.fixture
def leased(q: Queue) -> Lease:
    q.publish_many("emails", range(3))
    q.publish("letters", 1)
    return q.claim("emails")[0]


def _refused(house: House, q: Queue, codes: str, call: Callable[..., Any]) -> None:
    with house.unchanged(q), pytest.raises(TampuError) as refused:
        call()
    assert refused.value.code in codes.split()


def test_a_receipt_that_is_garbage_does_nothing(q: Queue, house: House, leased: Lease) -> None:
    for receipt in GARBAGE:
        for verb in (q.ack, q.nack, q.reject, q.release, q.extend):
            _refused(house, q, "invalid_message lease_lost", lambda v=verb, r=receipt: v(r))


def test_a_receipt_that_was_tampered_with_does_nothing(q: Queue, house: House, leased: Lease) -> None:
    queue, _, rest = leased.receipt.partition("/")
    seq, _, secret = rest.partition(".")
    for receipt in (
        f"letters/{rest}",
        f"nowhere/{rest}",
        f"{queue}/{seq}.1",
        f"{queue}/1.{secret}",
        f"{queue}/{int(seq, 16) + 2:x}.{secret}",
        f"{queue}/{seq}.{int(secret, 16) ^ 1:x}",
    ):
        for verb in (q.ack, q.nack, q.reject, q.release, q.extend):
            _refused(house, q, "lease_lost invalid_message", lambda v=verb, r=receipt: v(r))
    q.ack(leased)


def test_bad_details_of_a_settle_leave_the_lease(q: Queue, house: House, leased: Lease) -> None:
    for call in (
        lambda: q.nack(leased, error=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.nack(leased, traceback=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.nack(leased, delay=-1),
        lambda: q.nack(leased, delay=float("nan")),
        lambda: q.nack(leased, delay="5"),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.reject(leased, reason=""),
        lambda: q.reject(leased, reason=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.reject(leased, reason="x" * 129),
        lambda: q.reject(leased, reason="\ud800"),
        lambda: q.ack(leased, result=object()),
        lambda: q.ack(leased, result={1: object()}),
        lambda: q.ack(leased, result="\ud800"),
        lambda: q.ack(leased, result=2**65),
        lambda: q.extend(leased, 0),
        lambda: q.extend(leased, -1),
        lambda: q.extend(leased, float("inf")),
        lambda: q.extend(leased, "60"),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.settle([Nack(leased), Nack(leased, delay=-1)]),
    ):
        _refused(house, q, "invalid_message", call)
    q.ack(leased)


def test_error_texts_of_any_kind_are_kept_readable(q: Queue, leased: Lease) -> None:
    q.nack(leased, error="bad \ud800 text \x00", traceback="\udfff")
    failure = q.get(leased.id).failures[0]
    assert failure.error is not None
    assert failure.error.startswith("bad ")
    failure.error.encode()


def test_an_id_that_is_none_is_refused(q: Queue, house: House, leased: Lease) -> None:
    calls: list[Callable[[Any], Any]] = [
        q.get,
        q.cancel,
        lambda id: q.cancel(leased.id, id),
        q.free,
        lambda id: q.replay("emails", ids=[id]),
    ]
    for id in ("", "x", None, 3, b"0" * 16, "g" * 32, "0" * 31, "\ud800", ["a"]):
        for call in calls:
            _refused(house, q, "invalid_message", lambda c=call, i=id: c(i))


def test_bad_options_of_listing_are_refused(q: Queue, house: House, leased: Lease) -> None:
    def cursor(*parts: Any) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).decode().rstrip("=")

    bad: dict[str, list[Any]] = {
        "limit": [0, -1, 10_001, 1.0, True, "1", None],
        "state": ["", "sleeping", 3, [], b"ready"],
        "after": ["", "x", "!!!", 3, "größe", "AAAA", ["x"], b"x", cursor("ready", [1]), cursor("ready", [1, 2, 3]),
                  cursor("ready", ["a", 1]), cursor("ready", [2**63, 1]), cursor("ready"), cursor("nope", [1, 1])],
        "where": [3, "x", [], {"no_such": 1}, {"type": 3}, {"labels": {"a": 1}}, {"created_after": NAIVE},
                  {"ended_before": "yesterday"}, Where(created_before=NAIVE)],
    }  # fmt: skip
    for name, values in bad.items():
        for value in values:
            options = {name: value} | ({"state": "ready"} if name == "after" else {})
            _refused(house, q, "invalid_message", lambda o=options: q.messages("emails", **o))


def test_bad_options_of_replay_and_purge_are_refused(q: Queue, house: House, leased: Lease) -> None:
    q.reject(leased)
    for call in (
        lambda: q.replay("emails"),
        lambda: q.replay("emails", ids=[leased.id], where={}),
        lambda: q.replay("emails", where={}, limit=0),
        lambda: q.replay("emails", where={}, limit=True),
        lambda: q.replay("emails", where={"no_such": 1}),
        lambda: q.replay("emails", ids=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.replay("emails", ids="abc"),
        lambda: q.purge("emails", state="sleeping"),
        lambda: q.purge("emails", state=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.purge("emails", state=None),  # type: ignore[arg-type]  # bad on purpose
        lambda: q.purge("emails", state=["dead", "sleeping"]),
    ):
        _refused(house, q, "invalid_message", call)
    for state in ("leased", ["dead", "leased"]):
        _refused(house, q, "invalid_state", lambda s=state: q.purge("emails", state=s))


def test_bad_positions_in_the_journal_are_refused(q: Queue, house: House, leased: Lease) -> None:
    bad: list[Any] = [-1, True, "0", 1.0, {"0": -1}, {"0": "1"}, {0: 1}, [0], {"0": 2**70}, 2**63]
    for after in bad:
        _refused(house, q, "invalid_message", lambda a=after: q.journal(after=a))


def test_bad_limits_of_the_journal_are_refused(q: Queue, house: House, leased: Lease) -> None:
    bad: list[Any] = [0, -1, 100_001, True, 1.0, "1", None]
    for limit in bad:
        _refused(house, q, "invalid_message", lambda n=limit: q.journal(limit=n))


@pytest.mark.parametrize(
    "options",
    [{"url": ""}, {"url": 5}, {"url": b"x"}, {"url": "a\x00b"}, {"url": "nope://x"}, {"url": "memory://?x=1"},
     {"url": "sqlite://x"}, {"url": "memory://", "journal_retention": -1},
     {"url": "memory://", "journal_retention": "week"}, {"url": "x.db", "durability": "none"},
     {"url": "x.db", "durability": 5}],
    ids=str,
)  # fmt: skip
def test_bad_options_of_open_are_refused(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tampu.InvalidConfig):
        tampu.open(**options)
    assert list(tmp_path.iterdir()) == []


def test_every_error_has_its_own_code() -> None:
    errors = [e for e in vars(tampu).values() if isinstance(e, type) and issubclass(e, TampuError)]
    codes = [e.code for e in errors]
    assert len(codes) == len(set(codes)) == 20
    assert all(code == code.lower() and " " not in code for code in codes)


def test_times_are_refused_without_a_zone_and_told_how(q: Queue) -> None:
    with pytest.raises(tampu.InvalidMessage) as refused:
        q.publish("emails", 1, run_at=NAIVE + timedelta(days=1))
    assert refused.value.field == "run_at"
    assert refused.value.hint is not None
