"""A store that looks as if a shop had used it for an hour: what the pages of the console show, and their pictures."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import tampu
from tampu.testing import FakeClock

_WORKERS = ("web-1:411", "web-1:412", "batch-2:98")
_ERRORS = (
    "TimeoutError: smtp.example.org did not answer within 10 s",
    "ValueError: no address for customer 4711",
    "ConnectionResetError: payment gateway closed the connection",
)
_TRACE = 'Traceback (most recent call last):\n  File "shop/tasks.py", line 42, in send\n    smtp.send(message)\n'
_ORDER = {
    "type": "object",
    "required": ["customer", "total"],
    "properties": {"customer": {"type": "integer"}, "total": {"type": "number"}},
}


def fill(url: str, *, minutes: int = 60, seed: int = 1) -> None:
    """An hour until now: queues, failures, dead letters, schedules, a rule, reviews, and workers at work."""
    chance = random.Random(seed)
    clock = FakeClock(datetime.now(UTC) - timedelta(minutes=minutes))
    with tampu.open(url, clock=clock, maintenance=False) as store:
        _set_up(store)
        for minute in range(minutes):
            begun = clock.time
            _minute(store, clock, chance, minute)
            clock.move_to(max(begun + timedelta(minutes=1), clock.time))
        clock.move_to(datetime.now(UTC) - timedelta(seconds=20))
        _now(store)


def _set_up(store: tampu.Store) -> None:
    store.queues.put("shop.*", retention=7 * 86_400)
    store.queues.put("shop.emails", max_attempts=2, backoff=0)
    store.queues.put("shop.orders", max_attempts=3, backoff=0, max_in_flight=50)
    store.queues.put("reports", lease=300, max_attempts=1)
    store.schemas.put("order", _ORDER, queues=["shop.orders"])
    store.rules.put(
        "large-orders", when="message.payload.total > 5000.0", queues=["shop.orders"], actions=[{"copy": "reports"}]
    )
    store.schedules.put("nightly-report", queue="reports", cron="0 2 * * *", payload={"kind": "sales"}, type="report")
    store.schedules.put(
        "sync-stock", queue="shop.orders", every=900, payload={"customer": 1, "total": 0.0}, type="sync"
    )
    store.alerts.put("dead-emails", measure="dead", above=3, queues=["shop.emails"])
    store.patterns.put(
        "refund",
        context=[{"title": "Refund", "text": "{{ message.payload.amount }} EUR to {{ message.payload.to }}"}],
        fields={"note": "text"},
        queues=["refunds"],
    )


def _minute(store: tampu.Store, clock: FakeClock, chance: random.Random, minute: int) -> None:
    wave = 1 + (minute % 20) / 12
    orders = [
        tampu.NewMessage({"customer": chance.randrange(9000), "total": chance.randrange(200) / 2}, type="order.place")
        for _ in range(int(6 * wave))
    ]
    store.publish_many("shop.orders", orders)
    emails = [tampu.NewMessage({"to": f"c{n}@example.org"}, type="send") for n in range(int(9 * wave))]
    store.publish_many("shop.emails", emails)
    for queue, most, failing in (("shop.orders", 12, 0.04), ("shop.emails", 15, 0.1)):
        clock.advance(chance.random() * 4)
        leases = store.claim(queue, limit=most, worker=chance.choice(_WORKERS))
        clock.advance(0.5 + chance.random() * 6)
        for lease in leases:
            if chance.random() < failing:
                error = chance.choice(_ERRORS)
                store.nack(lease, error, delay=0, traceback=_TRACE + error)
            else:
                store.ack(lease, {"ok": True})


def _now(store: tampu.Store) -> None:
    store.publish(
        "reports", {"kind": "sales", "days": 30}, type="report", labels={"owner": "finance"}, correlation_id="report-7"
    )
    store.publish("shop.emails", {"to": "ada@example.org"}, type="send", delay=3600)
    store.publish("refunds", {"amount": 40, "to": "c7"}, type="refund", review="refund")
    store.claim("shop.orders", limit=2, worker="web-1:411", lease=3600)
    store.claim("reports", limit=1, worker="batch-2:98", lease=3600)
