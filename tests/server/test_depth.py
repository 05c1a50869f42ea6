"""Values that are nested too deeply are refused before they are decoded, alike in JSON and MessagePack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.model.errors import InvalidMessage
from tampu.wire import media as wire_media
from tampu.wire.media import decode_part
from tests.server.web import JSON, MSGPACK, Web

WRITE: dict[str, Callable[[Any], bytes]] = {JSON: msgspec.json.encode, MSGPACK: msgspec.msgpack.encode}
both = pytest.mark.parametrize("media", [JSON, MSGPACK])


def nested(levels: int) -> Any:
    value: Any = "]}"
    for level in range(levels):
        value = [0, value] if level % 2 else {'a"\\': value, "b": "[[{{"}
    return value


def levels_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(levels_of, value.values()), default=0)
    return 1 + max(map(levels_of, value), default=0) if isinstance(value, list) else 0


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text('[]{}"\\a', max_size=40)
    | st.sampled_from([b"\x91" * 20, b"\x81" * 300, b"\xdd" * 70_000, "[" * 300, "{" * 70_000]),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text('[]{}"\\'), inner, max_size=20),
    max_leaves=30,
)  # fmt: skip


@both
@given(value=values, most=st.integers(0, 4))
def test_the_depth_is_found_whatever_else_the_value_has(media: str, value: Any, most: int) -> None:
    raw = WRITE[media](value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_media, "MAX_DEPTH", most)
        try:
            wire_media.check_depth(raw, media, "payload")
            refused = False
        except InvalidMessage:
            refused = True
    assert refused == (levels_of(value) > most)


@both
def test_what_is_too_deep_is_not_decoded(media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(_: bytes) -> Any:
        raise AssertionError("decoded")

    monkeypatch.setattr("tampu.wire.media._from_json", decode)
    monkeypatch.setattr("tampu.wire.media._from_msgpack", decode)
    with pytest.raises(InvalidMessage, match="nested too deeply"):
        decode_part(WRITE[media](nested(wire_media.MAX_DEPTH + 1)), media, 1 << 20, "payload")


@both
def test_payloads_results_and_notes_have_a_bounded_depth(web: Web, media: str) -> None:
    def send(method: str, path: str, body: Any) -> Any:
        return web.request(method, path, WRITE[media](body), content_type=media, accept=JSON)

    good, bad = nested(wire_media.MAX_DEPTH - 2), nested(wire_media.MAX_DEPTH + 1)
    assert send("POST", "/v1/queues/jobs/publish", {"messages": [{"payload": bad}]}).code == "invalid_message"
    assert send("POST", "/v1/queues/jobs/publish", {"messages": [{"payload": good}]}).status == 200
    (lease,) = web.post("/v1/claim", {"queues": "jobs"}).json["leases"]
    note = {"receipt": lease["receipt"], "by": 60}
    path = f"/v1/messages/{lease['message']['id']}/note"
    assert send("PUT", path, {**note, "note": bad}).code == "invalid_message"
    assert send("PUT", path, {**note, "note": good}).json == {}

    def ack(result: Any) -> Any:
        return send(
            "POST", "/v1/settle", {"settlements": [{"verb": "ack", "receipt": lease["receipt"], "result": result}]}
        )

    assert ack(bad).code == "invalid_message"
    assert ack(good).json["outcomes"][0]["state"] == "done"
