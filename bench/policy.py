"""What policies cost a publish: an embedded file, full fsync, batches of 100, in turns with a queue that has none."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tampu
from bench.measure import Row

_RULES = 20
_SUBSCRIPTIONS = 10
_SCHEMA = {
    "type": "object",
    "required": ["to", "text"],
    "properties": {"to": {"type": "string"}, "text": {"type": "string", "maxLength": 1000}, "n": {"type": "integer"}},
}


def _rules(store: tampu.Store) -> None:
    """Twenty rules for the queue, of which the last one matches."""
    for n in range(_RULES):
        when = f"message.payload.n == {-1 - n}" if n < _RULES - 1 else "message.payload.n >= 0"
        store.rules.put(f"r{n:02}", queues="rules", when=when, actions=[{"set": {"labels": {"rule": str(n)}}}])


def _subscriptions(store: tampu.Store) -> None:
    store.queues.put("news", consumer_mode="broadcast")
    for n in range(_SUBSCRIPTIONS):
        store.subscriptions.put("news", f"s{n}")


CASES: dict[str, tuple[str, Callable[[tampu.Store], object]]] = {
    f"{_RULES} rules, the last one matches": ("rules", _rules),
    "a schema": ("schemas", lambda store: store.schemas.put("s", _SCHEMA, queues="schemas")),
    f"{_SUBSCRIPTIONS} subscriptions": ("news", _subscriptions),
}


def run(quick: bool) -> list[Row]:
    turns, batches = (3, 10) if quick else (7, 40)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for title, (queue, prepare) in CASES.items():
            with tampu.open(Path(folder) / f"{queue}.db", maintenance=False) as store:
                plain, policy = [], []
                plain.append(_rate(store, "plain", batches))  # warm
                prepare(store)
                for _ in range(turns):
                    plain.append(_rate(store, "plain", batches))
                    policy.append(_rate(store, queue, batches))
            rows.append(Row(f"{title} / none", max(policy) / max(plain), "ratio", "", f"{max(policy):,.0f} messages/s"))
    return rows


def _rate(store: tampu.Store, queue: str, batches: int) -> float:
    news = [{"to": "ada@example.org", "text": "x" * 150, "n": n} for n in range(100)]
    began = time.perf_counter()
    for _ in range(batches):
        store.publish_many(queue, news)
    return batches * 100 / (time.perf_counter() - began)
