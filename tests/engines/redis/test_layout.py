"""The page about the layout is true: it lists the keys there are, and a worker that knows only it can join."""

import re
import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tampu
from tampu.broker import access
from tampu.engines import port
from tampu.engines.redis.connection import scripts
from tests.servers import redis

PAGE = Path(__file__).parents[3] / "docs/reference/redis-layout.md"


def _documented() -> set[str]:
    found: set[str] = set()
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| `", line):
            found.update(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return found


def _use(store: tampu.Store) -> None:
    store.queues.put("jobs", group_order=True, rate=1000)
    store.publish_many("jobs", [1, 2, 3])
    store.publish(
        "jobs", 4, key="k", ttl=60, idempotency_key="i", priority=3, id="2f1e9c1e-7d8c-4c55-9a52-4f1a6a1b2c3d"
    )
    store.publish_many("jobs", [tampu.NewMessage(n, group="g") for n in range(3)])
    store.publish("jobs", 5, delay=60)
    store.publish("jobs", 6, hold="x")
    store.cancel(store.publish("jobs", 7).id)
    a, b, c = store.claim("jobs", limit=3)
    store.ack(a, result={"n": 1})
    store.nack(b, error="no", delay=0)
    store.reject(c, error="bad")
    store.publish("other", 1, id="0123456789ab8cde8f01230000000001")


def test_every_key_is_documented() -> None:
    url = redis.redis.url()
    with tampu.open(url, maintenance=False) as store:
        _use(store)
        assert access.engine(store).lead()
        prefix = url.partition("prefix=")[2]
        ends = {key.decode().partition("}:")[2] for key in redis.redis.server.client().scan_iter(f"{{{prefix}*")}
    ends = {
        re.sub(r"^([mx]):.*", r"\1:<block>", re.sub(r"^(doc|docnames):.*", r"\1:<kind>:<tenant>", end)) for end in ends
    }
    assert len(ends) > 20
    assert ends <= _documented()


def test_documents_of_an_earlier_version_are_found_by_their_names() -> None:
    """It did not keep their names in order."""
    with tampu.open(redis.redis.url(), maintenance=False) as store:
        engine: Any = access.engine(store)
        engine.run([port.PutDocument("kind", "default", name, b"1") for name in ("a/1", "a/2", "b/1")])
        engine.query(_ask(engine.registry.write.plain("DEL", engine.registry.tags.registry, "docnames:kind:default")))
        assert [found.name for found in engine.documents("kind", "default", "a/")] == ["a/1", "a/2"]
        engine.run([port.DeleteDocument("kind", "default", "a/1")])
        assert [found.name for found in engine.documents("kind", "default", "a/")] == ["a/2"]


def _ask(call: Any) -> Any:
    (reply,) = yield [call]
    return reply


def test_documented_keys_are_in_the_scripts() -> None:
    text = "\n".join(scripts.source(name) for name in scripts.files())
    for end in _documented():
        if not end.startswith(("{", "doc:", "docnames:", "bell", "append")):
            name = re.escape(end.removesuffix(":<block>"))
            assert re.search(rf"'{name}'|\b{name} = '", text), end


class Stranger:
    """A worker that has a plain client, a msgpack library, the script files and the page."""

    def __init__(self, client: Any, prefix: str, queue: str) -> None:
        self._client = client
        self._tag = f"{{{prefix}:default:{queue}}}"

    def _call(self, script: str, *args: Any) -> Any:
        return self._client.eval(scripts.source(script), 1, self._tag, "", *args)

    def claim(self, limit: int) -> tuple[str, list[tuple[str, int, bytes]]]:
        """The lease, and (number, attempt, payload) of each message."""
        lease = f"{secrets.randbits(63):x}"
        reply = self._call("claim", limit, lease, 30_000_000, "stranger", 0, 0, 1, 1000)
        if len(reply) == 3:
            return lease, []
        _, _, _, _, numbers, attempts, _, *messages = reply
        text = numbers.decode()
        counts = [attempts] * len(messages) if isinstance(attempts, int) else msgspec.msgpack.decode(attempts)
        return lease, [
            (text[16 * i : 16 * i + 16], counts[i], msgspec.msgpack.decode(raw)[5][1]) for i, raw in enumerate(messages)
        ]

    def ack(self, lease: str, numbers: list[str]) -> bytes:
        letters: bytes = self._call("ack", "".join(numbers), msgspec.msgpack.encode(lease))[2]
        return letters

    def nack(self, lease: str, number: str, error: str) -> int:
        item = {"v": "n", "s": number, "l": lease, "d": 0, "e": error, "g": error}
        reply = self._call("settle", msgspec.msgpack.encode([]), msgspec.msgpack.encode([item]))
        state: int = reply[2][0]
        return state


@pytest.mark.parametrize("server", ["redis", "valkey"])
def test_a_worker_that_knows_only_the_page_can_join(server: str) -> None:
    databases = getattr(redis, server)
    url = databases.url()
    with tampu.open(url, maintenance=False) as store, databases.server.client() as client:
        store.publish_many("jobs", ["a", "b", "c"])
        stranger = Stranger(client, url.partition("prefix=")[2], "jobs")
        lease, taken = stranger.claim(2)
        assert [(attempt, payload) for _, attempt, payload in taken] == [(1, b'"a"'), (1, b'"b"')]
        assert stranger.nack(lease, taken[1][0], "boom") == 0
        assert stranger.ack(lease, [taken[0][0]]) == b"d"
        assert stranger.ack(lease, [taken[0][0]]) == b"d", "the same again"
        assert stranger.ack(lease, [taken[1][0]]) == b"l", "settled in another way"
        (c, b) = store.claim("jobs", limit=5)
        assert (c.payload, b.payload, b.attempt, b.message.last_error) == ("c", "b", 2, "boom")
        transitions = [(t.verb, t.worker) for t in store.journal().transitions]
        assert ("claim", "stranger") in transitions
        assert ("nack", "stranger") in transitions


def test_a_newer_layout_is_refused() -> None:
    url = redis.redis.url()
    prefix = url.partition("prefix=")[2]
    redis.redis.server.client().hset(f"{{{prefix}}}:n", "layout", 99)
    with pytest.raises(tampu.SchemaMismatch):
        tampu.open(url)


def test_ids_of_layout_4_go_on_and_new_ones_have_secret_tails() -> None:
    url = redis.redis.url()
    registry, client = f"{{{url.partition('prefix=')[2]}}}", redis.redis.server.client()
    tampu.open(url, maintenance=False).close()
    client.hset(f"{registry}:n", "since", "7" + "f" * 15)
    with tampu.open(url, maintenance=False) as store:
        old = [message.id for message in store.publish_many("jobs", range(3))]
        assert len({id[-12:] for id in old}) == 1
    client.hdel(f"{registry}:n", "secret", "since")
    client.hset(f"{registry}:n", "layout", 4)
    client.hdel(f"{registry}:tails", *(name for name in client.hkeys(f"{registry}:tails") if len(name) == 6))
    with tampu.open(url, maintenance=False) as store:
        new = [message.id for message in store.publish_many("jobs", range(3, 6))]
        assert [store.get(id).payload for id in old + new] == list(range(6))
        assert [lease.id for lease in store.claim("jobs", limit=10)] == old + new
        assert len({id[-8:] for id in old[:1] + new}) == 4
