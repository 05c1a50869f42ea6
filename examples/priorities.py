"""Orderings: higher priority first, ageing so that nothing waits forever, deadlines, and groups in order."""

from datetime import UTC, datetime, timedelta

import tampu


def drain(store: tampu.Store, queue: str) -> list[str]:
    leases = store.claim(queue, limit=100)
    store.settle([tampu.Ack(lease) for lease in leases])
    return [lease.payload for lease in leases]


with tampu.open("memory://") as store:
    store.queues.put("mail", ordering="priority")
    for name, priority in [("newsletter", 0), ("password reset", 9), ("receipt", 5), ("second receipt", 5)]:
        store.publish("mail", name, priority=priority)
    print("priority:", drain(store, "mail"))

    # A minute of waiting is worth one step of priority.
    store.queues.put("mail", ageing=60)
    store.publish("mail", "waits, but not for ever", priority=0)
    print("ageing:  ", drain(store, "mail"))

    store.queues.put("reports", ordering="deadline")
    now = datetime.now(UTC)
    store.publish("reports", "due tomorrow", deadline=now + timedelta(days=1))
    store.publish("reports", "due in an hour", deadline=now + timedelta(hours=1))
    store.publish("reports", "whenever")
    print("deadline:", drain(store, "reports"))

    store.queues.put("accounts", group_order=True)
    for step in ("open", "deposit", "close"):
        store.publish("accounts", step, group="account-1")
    store.publish("accounts", "open another", group="account-2")
    while payloads := drain(store, "accounts"):
        print("groups:  ", payloads)
