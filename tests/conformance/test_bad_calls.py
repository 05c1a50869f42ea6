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
from tampu.broker.store import Store
from tampu.model.message import Lease
from tests.conformance.harness import Refusals

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - naive on purpose
GARBAGE: list[Any] = [
    "", "x", "emails", "emails/", "emails/zz.zz", "emails/1", "emails/1.", "/1.1", "emails/-1.1", "größe/1.1",
    "emails/1.1\n", "a b/1.1", "x" * 600, None, 3, b"emails/1.1", ["emails/1.1"], "\ud800/1.1",
    "emails/ffffffffffffffff.1", "emails/1.ffffffffffffffff", "emails/11111111111111111.1", object(),
]  # fmt: skip


@pytest.fixture
def leased(store: Store) -> Lease:
    store.publish_many("emails", range(3))
    store.publish("letters", 1)
    return store.claim("emails")[0]


def test_a_receipt_that_is_garbage_does_nothing(store: Store, refused: Refusals, leased: Lease) -> None:
    for receipt in GARBAGE:
        for verb in (store.ack, store.nack, store.reject, store.release, store.extend):
            refused(store, "invalid_message lease_lost", lambda v=verb, r=receipt: v(r))


def test_a_receipt_that_was_tampered_with_does_nothing(store: Store, refused: Refusals, leased: Lease) -> None:
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
        for verb in (store.ack, store.nack, store.reject, store.release, store.extend):
            refused(store, "lease_lost invalid_message", lambda v=verb, r=receipt: v(r))
    refused.check()
    store.ack(leased)


def test_bad_details_of_a_settle_leave_the_lease(store: Store, refused: Refusals, leased: Lease) -> None:
    for call in (
        lambda: store.nack(leased, error=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: store.nack(leased, traceback=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: store.nack(leased, delay=-1),
        lambda: store.nack(leased, delay=float("nan")),
        lambda: store.nack(leased, delay="soon"),
        lambda: store.reject(leased, reason=""),
        lambda: store.reject(leased, reason=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: store.reject(leased, reason="x" * 129),
        lambda: store.reject(leased, reason="\ud800"),
        lambda: store.ack(leased, result=object()),
        lambda: store.ack(leased, result={1: object()}),
        lambda: store.ack(leased, result="\ud800"),
        lambda: store.ack(leased, result=2**65),
        lambda: store.extend(leased, 0),
        lambda: store.extend(leased, -1),
        lambda: store.extend(leased, float("inf")),
        lambda: store.extend(leased, "soon"),
        lambda: store.settle([Nack(leased), Nack(leased, delay=-1)]),
    ):
        refused(store, "invalid_message", call)
    refused.check()
    store.ack(leased)


def test_error_texts_of_any_kind_are_kept_readable(store: Store, leased: Lease) -> None:
    store.nack(leased, error="bad \ud800 text \x00", traceback="\udfff")
    failure = store.get(leased.id).failures[0]
    assert failure.error is not None
    assert failure.error.startswith("bad ")
    failure.error.encode()


def test_a_malformed_id_is_refused(store: Store, refused: Refusals, leased: Lease) -> None:
    calls: list[Callable[[Any], Any]] = [
        store.get,
        store.cancel,
        lambda id: store.cancel(leased.id, id),
        store.free,
        lambda id: store.replay("emails", ids=[id]),
    ]
    for id in ("", "x", None, 3, b"0" * 16, "g" * 32, "0" * 31, "\ud800", ["a"]):
        for call in calls:
            refused(store, "invalid_message", lambda c=call, i=id: c(i))


def test_bad_options_of_listing_are_refused(store: Store, refused: Refusals, leased: Lease) -> None:
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
            refused(store, "invalid_message", lambda o=options: store.messages("emails", **o))


def test_bad_options_of_replay_and_purge_are_refused(store: Store, refused: Refusals, leased: Lease) -> None:
    store.reject(leased)
    for call in (
        lambda: store.replay("emails"),
        lambda: store.replay("emails", ids=[leased.id], where={}),
        lambda: store.replay("emails", where={}, limit=0),
        lambda: store.replay("emails", where={}, limit=True),
        lambda: store.replay("emails", where={"no_such": 1}),
        lambda: store.replay("emails", ids=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: store.replay("emails", ids="abc"),
        lambda: store.purge("emails", state="sleeping"),
        lambda: store.purge("emails", state=5),  # type: ignore[arg-type]  # bad on purpose
        lambda: store.purge("emails", state=None),  # type: ignore[arg-type]  # bad on purpose
        lambda: store.purge("emails", state=["dead", "sleeping"]),
    ):
        refused(store, "invalid_message", call)
    for state in ("leased", ["dead", "leased"]):
        refused(store, "invalid_state", lambda s=state: store.purge("emails", state=s))


def test_bad_positions_in_the_journal_are_refused(store: Store, refused: Refusals, leased: Lease) -> None:
    bad: list[Any] = [-1, True, "0", 1.0, {"0": -1}, {"0": "1"}, {0: 1}, [0], {"0": 2**70}, 2**63]
    for after in bad:
        refused(store, "invalid_message", lambda a=after: store.journal(after=a))


def test_bad_limits_of_the_journal_are_refused(store: Store, refused: Refusals, leased: Lease) -> None:
    bad: list[Any] = [0, -1, 100_001, True, 1.0, "1", None]
    for limit in bad:
        refused(store, "invalid_message", lambda n=limit: store.journal(limit=n))


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


def test_times_without_a_zone_are_refused_with_a_hint(store: Store) -> None:
    with pytest.raises(tampu.InvalidMessage) as refused:
        store.publish("emails", 1, run_at=NAIVE + timedelta(days=1))
    assert refused.value.field == "run_at"
    assert refused.value.hint is not None
