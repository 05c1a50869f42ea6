"""Rows of a DataFrame become packed messages by the rules of publish. No Spark here: only Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tampu.broker.settings import Settings, resolve
from tampu.model.config import BUILT_IN
from tampu.model.message import unpack_body
from tampu.model.values import pack_payload
from tampu.spark.write import values
from tampu.spark.write.rows import Packer, item
from tampu.stores.columns import PAIRS, TIME

SETTINGS = resolve(BUILT_IN)


def packer(queue: str | None = "jobs", payload_format: str = "auto", **changes: Any) -> Packer:
    settings: Settings = msgspec.structs.replace(SETTINGS, **changes)
    return Packer(queue, payload_format, lambda _: settings)


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def errors(found: Any) -> list[tuple[int, str | None]]:
    return [(bad.row, bad.error.field) for bad in found]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_columns_are_packed_as_publish_packs_a_message(kind: pa.DataType) -> None:
    lengths = (0, 1, 31, 32, 255, 256, 65_535, 65_536, 200_000)
    payloads = [b"x" * n for n in lengths]
    types = [None, "a.b", "message", "t" * 200, "a.b", "x", "y", "z", None]
    given = batch(payload=pa.array(payloads, pa.binary()).cast(kind), type=pa.array(types, pa.string()))
    packed, bad = packer().pack(given, 7)
    content_type = "text/plain" if kind == pa.string() else "application/octet-stream"
    expected = [pack_payload(t or "message", p, content_type) for t, p in zip(types, payloads, strict=True)]
    assert packed.column("body").to_pylist() == expected
    assert packed.column("row").to_pylist() == list(range(7, 16))
    assert packed.column("more").null_count == len(packed)
    assert bad == []


def test_a_slice_of_a_batch_is_packed_as_itself() -> None:
    given = batch(payload=pa.array([b"a", b"b", b"c"])).slice(1, 1)
    packed, _ = packer().pack(given, 0)
    assert [unpack_body(raw).payload for raw in packed.column("body").to_pylist()] == [b"b"]


def test_one_bad_row_is_set_aside_and_the_others_stay() -> None:
    given = batch(
        payload=pa.array([b"ok", None, b"ok", b"x" * 11, b"ok", b"ok"]),
        type=pa.array(["t", "t", "not a type", "t", "t", "t"]),
        queue=pa.array([None, None, None, None, "no queue!", "other"]),
    )
    one = packer(max_payload=10)
    packed, bad = one.pack(given, 100)
    assert packed.column("row").to_pylist() == [100, 105]
    assert packed.column("queue").to_pylist() == [None, "other"]
    assert errors(bad) == [(101, "payload"), (102, "type"), (103, "payload"), (104, "queue")]
    assert dict(one.queues) == {"jobs": 1, "other": 1}
    assert errors(packer(None).pack(batch(payload=pa.array([b"x"])), 0)[1]) == [(0, "queue")]


def test_times_beyond_python_are_bad_rows() -> None:
    micros = [None, 0, 4_102_444_800_000_000, -1, 10**18, -(10**17)]
    given = batch(payload=pa.array([b"x"] * 6), run_at=pa.array(micros, pa.int64()).cast(TIME))
    packed, bad = packer().pack(given, 0)
    assert packed.column("row").to_pylist() == [0, 1, 2]
    assert errors(bad) == [(3, "run_at"), (4, "run_at"), (5, "run_at")]
    more, body = packed.column("more")[2].as_py(), packed.column("body")[2].as_py()
    made = item(body, more, 5, "id")
    assert (made.run_us, made.max_attempts, made.body.payload, made.id) == (4_102_444_800_000_000, 5, b"x", "id")


def test_all_columns_reach_the_message() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    texts = ("key", "idempotency_key", "correlation_id", "causation_id", "parent_id", "group", "source")
    given = batch(
        payload=pa.array(["x"]),
        priority=pa.array([3], pa.int16()),
        ttl=pa.array([Decimal("1.5")]),
        delay=pa.array([2_000_000], pa.duration("us")),
        deadline=pa.array([at], TIME),
        labels=pa.array([[("a", "b")]], PAIRS),
        headers=pa.array([[]], PAIRS),
        max_attempts=pa.array([9]),
        content_type=pa.array(["text/html"]),
        **{name: pa.array([name]) for name in texts},
    )
    packed, bad = packer(slots=1).pack(given, 0)
    assert bad == []
    made = item(packed.column("body")[0].as_py(), packed.column("more")[0].as_py(), 5, "id")
    body = made.body
    assert [getattr(body, name) for name in texts] == list(texts)
    assert (body.payload, body.content_type, body.priority, body.labels, body.headers) == (
        b"x", "text/html", 3, {"a": "b"}, None,
    )  # fmt: skip
    assert (made.ttl_us, made.delay_us, made.max_attempts, made.group) == (1_500_000, 2_000_000, 9, "group")
    assert made.digest is not None
    assert body.deadline == round(at.timestamp() * 1_000_000)


def test_only_what_needs_it_goes_the_slow_way() -> None:
    given = batch(payload=pa.array(["a", "b"]), priority=pa.array([0, 1]), labels=pa.array([[("k", "v")]] * 2, PAIRS))
    assert packer().pack(given.drop_columns(["priority"]), 0)[0].column("more").null_count == 2
    for ordering in ("fifo", "priority"):
        assert packer(ordering=ordering).pack(given, 0)[0].column("more").null_count == 1
    for changes in ({"ttl_us": 1}, {"ordering": "deadline"}, {"ordering": "priority", "ageing_us": 1}):
        assert packer(**changes).pack(given, 0)[0].column("more").null_count == 0
        assert packer(**changes).pack(given.select(["payload"]), 0)[0].column("more").null_count == 0


def test_json_payloads() -> None:
    kind = pa.struct([("d", pa.date32()), ("n", pa.decimal128(10, 2)), ("b", pa.binary()), ("m", PAIRS)])
    rows = [{"d": date(2026, 1, 2), "n": Decimal("1.50"), "b": b"\xff", "m": [("k", "v")]}, None]
    packed, bad = packer().pack(batch(payload=pa.array(rows, kind)), 0)
    body = unpack_body(packed.column("body")[0].as_py())
    assert body.content_type == "application/json"
    assert msgspec.json.decode(body.payload) == {"d": "2026-01-02", "n": 1.5, "b": "/w==", "m": {"k": "v"}}
    assert errors(bad) == [(1, "payload")]
    numbers = pa.array([1.5, float("nan"), float("inf"), None])
    packed, bad = packer().pack(batch(payload=numbers), 0)
    assert [unpack_body(raw).payload for raw in packed.column("body").to_pylist()] == [b"1.5"]
    assert errors(bad) == [(1, "payload"), (2, "payload"), (3, "payload")]


def test_text_is_json_only_when_that_is_said_and_then_it_is_checked() -> None:
    given = batch(payload=pa.array(['{"a":1}', "{", "1 2"]))
    packed, _ = packer().pack(given, 0)
    assert {unpack_body(raw).content_type for raw in packed.column("body").to_pylist()} == {"text/plain"}
    packed, bad = packer(payload_format="json").pack(given, 0)
    assert [unpack_body(raw).content_type for raw in packed.column("body").to_pylist()] == ["application/json"]
    assert errors(bad) == [(1, "payload"), (2, "payload")]
    raw = batch(payload=pa.array([b'"\xff"', b"[]"]), content_type=pa.array(["application/json"] * 2))
    assert errors(packer().pack(raw, 0)[1]) == [(0, "payload")]
    typed = batch(payload=pa.array([1]), content_type=pa.array(["text/plain"]))
    assert errors(packer().pack(typed, 0)[1]) == [(0, "content_type")]


def test_a_row_is_shown_whatever_it_holds() -> None:
    given = batch(payload=pa.array([b"\xff"]), run_at=pa.array([10**18], pa.int64()).cast(TIME))
    assert '"payload":"/w=="' in values.show(given, 0)
    assert "out of range" in values.show(given, 0)
