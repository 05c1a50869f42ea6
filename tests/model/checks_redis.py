"""What must be true of the Redis engine's keys after every step."""

from __future__ import annotations

from typing import Any

import msgspec

from tampu.engines.redis.connection.script_calls import ScriptCall
from tampu.engines.redis.queue_registry import QueueEntry
from tampu.engines.redis.rows import STATES
from tests.model.entries import Entry
from tests.model.reference import Model

NAMES = [str(state) for state in STATES]
decode = msgspec.msgpack.decode


def rooms_of(engine: Any, model: Model) -> list[QueueEntry]:
    return [engine.registry._entries[place] for place in model.rules if place in engine.registry._entries]


def fill_blocks(engine: Any, model: Model) -> None:
    """Let the last blocks count as full: what comes next begins one, so that a few messages are in many."""
    engine.wire.send(
        [ScriptCall(entry.tag, ("HSET", f"{entry.tag}:n", "size", 1_000_000)) for entry in rooms_of(engine, model)]
    )


def keys_agree(engine: Any, model: Model) -> None:
    entries = rooms_of(engine, model)
    asks: list[ScriptCall] = []
    for entry in entries:
        asks += [ScriptCall(entry.tag, ("ZRANGE", f"{entry.tag}:{name}", 0, -1)) for name in (*NAMES, "aged", "lanes")]
        asks += [
            ScriptCall(entry.tag, ("ZRANGE", f"{entry.tag}:{name}", 0, -1, "WITHSCORES"))
            for name in ("leased", "expiry")
        ]
        asks += [ScriptCall(entry.tag, ("HGETALL", f"{entry.tag}:{name}")) for name in ("key", "lane", "own", "n")]
        asks.append(ScriptCall(entry.tag, ("ZRANGE", f"{entry.tag}:blocks", 0, -1)))
    replies = engine.wire.send(asks)
    assert not any(isinstance(reply, Exception) for reply in replies)
    size = len(asks) // len(entries) if entries else 0
    total = 0
    for i, entry in enumerate(entries):
        *mine, blocks = replies[i * size : (i + 1) * size]
        total += room_agrees(entry, mine, *in_blocks(engine, entry, blocks), model=model)
    assert total == len(model.entries), "messages without an entry"


def in_blocks(engine: Any, entry: QueueEntry, blocks: list[bytes]) -> list[dict[bytes, bytes]]:
    """`m` and `x` of a queue; all are in the last block that does not begin after them, and only the last is empty."""
    keys = [(name, block) for name in "mx" for block in blocks]
    flats = engine.wire.send(
        [ScriptCall(entry.tag, ("HGETALL", f"{entry.tag}:{name}:{at.decode()}")) for name, at in keys]
    )
    ends = dict(zip(blocks, [*blocks, b"~"][1:], strict=True))
    found: dict[str, dict[bytes, bytes]] = {"m": {}, "x": {}}
    for (name, block), flat in zip(keys, flats, strict=True):
        assert flat or name == "x" or block == blocks[-1], "an empty block"
        assert all(block <= seq[:11] < ends[block] for seq in flat[::2]), "a message in another's block"
        found[name].update(zip(flat[::2], flat[1::2], strict=True))
    return list(found.values())


def room_agrees(
    entry: QueueEntry, replies: list[Any], m: dict[bytes, bytes], x: dict[bytes, bytes], *, model: Model
) -> int:
    """How many messages there are."""
    indexes = dict(zip(NAMES, replies, strict=False))
    aged, groups, leased, expiry = replies[8:12]
    keys, group_name, own, numbers = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in replies[12:])
    runs = len(indexes["ready"])
    indexes["ready"] = [one for member in indexes["ready"] for one in spread(member)]
    assert len(indexes["ready"]) - runs == int(numbers.get(b"more", 0)), "how many messages are in runs"
    places = {name: [member[-16:] for member in members] for name, members in indexes.items()}
    everywhere = [seq for seqs in places.values() for seq in seqs]
    assert sorted(everywhere) == sorted(m), "each message in exactly one index"
    rows = {seq: decode(raw) for seq, raw in x.items()}
    assert rows.keys() <= m.keys(), "a place without a message"
    for code, name in enumerate(NAMES):
        assert all((rows[seq][0] if seq in rows else 0) == code for seq in places[name]), f"places of {name}"
    ids = {seq: (decode(raw)[4] or {}).get("o") or entry.ids.of(seq.decode()) for seq, raw in m.items()}
    entries = {seq: model.entries[entry.tenant, id] for seq, id in ids.items()}
    leases = dict(zip(leased[::2], map(float, leased[1::2]), strict=True))
    assert leases == {seq: entries[seq].until for seq in places["leased"]}, "every lease is watched"
    waiting = {seq: e.expires for seq, e in entries.items() if e.state in ("ready", "delayed", "held") and e.expires}
    assert dict(zip(expiry[::2], map(float, expiry[1::2]), strict=True)) == waiting, "what may expire"
    plain = {member[16:] for member in indexes["ready"] if len(member) == 32 and member.startswith(b"8" + b"0" * 15)}
    assert set(aged) == set(places["ready"]) - plain, "who is not first by number"
    slots = {
        (group.decode(), ids[row[i : i + 16]]) for group, row in group_name.items() for i in range(0, len(row), 16)
    }
    assert slots == {(e.group, e.id) for e in entries.values() if e.has_turn}, "whose turn it is"
    assert {member[40:] for member in groups} == {seq for seq, e in entries.items() if e.waits_turn}, "who waits for it"
    assert {id.decode(): seq for id, seq in own.items()} == {
        id: seq for seq, id in ids.items() if int(chr(seq[-1]), 16) % 2
    }, "ids of the user's own"
    choose_holders({key.decode(): entries[seq] for key, seq in keys.items()}, entries.values())
    return len(m)


def spread(member: bytes) -> list[bytes]:
    """The messages of a run, as if each had a member of its own."""
    first, _, count = member.partition(b"*")
    if not count:
        return [member]
    start, no = first[:-5], int(first[-5:], 16)
    return [start + b"%05x" % n for n in range(no, no + 2 * int(count), 2)]


def choose_holders(found: dict[str, Entry], entries: Any) -> None:
    """Each key has the holder the model says; of two that came back together the engine may choose."""
    held = {e.key: e for e in entries if e.has_key}
    assert found.keys() == held.keys(), "who has the key"
    for key, entry in found.items():
        holder = held[key]
        if entry is not holder:
            assert entry.waits_since == holder.waits_since, "the key has the wrong holder"
            holder.has_key, entry.has_key = False, True
