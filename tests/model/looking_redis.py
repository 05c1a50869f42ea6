"""What must be true of the Redis engine's keys after every step."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.engines.redis.asking import Ask
from tampu.engines.redis.house import Room
from tampu.engines.redis.rows import STATES
from tests.model.entries import Entry
from tests.model.reference import Model

NAMES = [str(state) for state in STATES]
decode = msgspec.msgpack.decode


def keys_agree(engine: Any, model: Model) -> None:
    rooms = [engine.house._rooms[place] for place in model.rules if place in engine.house._rooms]
    asks: list[Ask] = []
    for room in rooms:
        asks += [Ask(room.tag, ("ZRANGE", f"{room.tag}:{name}", 0, -1)) for name in (*NAMES, "aged", "lanes")]
        asks += [Ask(room.tag, ("ZRANGE", f"{room.tag}:{name}", 0, -1, "WITHSCORES")) for name in ("leased", "expiry")]
        asks += [Ask(room.tag, ("HGETALL", f"{room.tag}:{name}")) for name in ("m", "x", "key", "lane", "own")]
    replies = engine._wire.send(asks)
    assert not any(isinstance(reply, Exception) for reply in replies)
    size = len(asks) // len(rooms) if rooms else 0
    total = 0
    for i, room in enumerate(rooms):
        total += room_agrees(room, replies[i * size : (i + 1) * size], model)
    assert total == len(model.entries), "messages without an entry"


def room_agrees(room: Room, replies: list[Any], model: Model) -> int:
    """How many messages there are."""
    indexes = dict(zip(NAMES, replies, strict=False))
    aged, lanes, leased, expiry = replies[8:12]
    m, x, keys, lane, own = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in replies[12:])
    places = {name: [member[-16:] for member in members] for name, members in indexes.items()}
    everywhere = [seq for seqs in places.values() for seq in seqs]
    assert sorted(everywhere) == sorted(m), "each message in exactly one index"
    rows = {seq: decode(raw) for seq, raw in x.items()}
    assert rows.keys() <= m.keys(), "a place without a message"
    for code, name in enumerate(NAMES):
        assert all((rows[seq][0] if seq in rows else 0) == code for seq in places[name]), f"places of {name}"
    ids = {seq: (decode(raw)[4] or {}).get("o") or room.ids.of(seq.decode()) for seq, raw in m.items()}
    entries = {seq: model.entries[room.tenant, id] for seq, id in ids.items()}
    leases = dict(zip(leased[::2], map(float, leased[1::2]), strict=True))
    assert leases == {seq: entries[seq].until for seq in places["leased"]}, "every lease is watched"
    waiting = {seq: e.expires for seq, e in entries.items() if e.state in ("ready", "delayed", "held") and e.expires}
    assert dict(zip(expiry[::2], map(float, expiry[1::2]), strict=True)) == waiting, "what may expire"
    plain = {member[16:] for member in indexes["ready"] if len(member) == 32 and member.startswith(b"8" + b"0" * 15)}
    assert set(aged) == set(places["ready"]) - plain, "who is not first by number"
    assert {group.decode(): ids[seq] for group, seq in lane.items()} == {
        e.group: e.id for e in entries.values() if e.has_turn
    }, "whose turn it is"
    assert {member[40:] for member in lanes} == {seq for seq, e in entries.items() if e.waits_turn}, "who waits for it"
    assert {id.decode(): seq for id, seq in own.items()} == {
        id: seq for seq, id in ids.items() if int(chr(seq[-1]), 16) % 2
    }, "ids of the user's own"
    choose_holders({key.decode(): entries[seq] for key, seq in keys.items()}, entries.values())
    return len(m)


def choose_holders(found: dict[str, Entry], entries: Any) -> None:
    """Each key has the holder the model says; of two that came back together the engine may choose."""
    held = {e.key: e for e in entries if e.has_key}
    assert found.keys() == held.keys(), "who has the key"
    for key, entry in found.items():
        holder = held[key]
        if entry is not holder:
            assert entry.waits_since == holder.waits_since, "the key has the wrong holder"
            holder.has_key, entry.has_key = False, True
