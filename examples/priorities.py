"""Orderings: higher priority first, ageing so that nothing waits for ever, deadlines, and groups in order."""

from datetime import UTC, datetime, timedelta

import tampu


def drain(q: tampu.Queue, queue: str) -> list[str]:
    leases = q.claim(queue, limit=100)
    q.settle([tampu.Ack(lease) for lease in leases])
    return [lease.payload for lease in leases]


with tampu.open("memory://") as q:
    q.queues.put("mail", ordering="priority")
    for name, priority in [("newsletter", 0), ("password reset", 9), ("receipt", 5), ("second receipt", 5)]:
        q.publish("mail", name, priority=priority)
    print("priority:", drain(q, "mail"))

    # A minute of waiting is worth one step of priority.
    q.queues.put("mail", ageing=60)
    q.publish("mail", "waits, but not for ever", priority=0)
    print("ageing:  ", drain(q, "mail"))

    q.queues.put("reports", ordering="deadline")
    now = datetime.now(UTC)
    q.publish("reports", "due tomorrow", deadline=now + timedelta(days=1))
    q.publish("reports", "due in an hour", deadline=now + timedelta(hours=1))
    q.publish("reports", "whenever")
    print("deadline:", drain(q, "reports"))

    q.queues.put("accounts", group_order=True)
    for step in ("open", "deposit", "close"):
        q.publish("accounts", step, group="account-1")
    q.publish("accounts", "open another", group="account-2")
    while payloads := drain(q, "accounts"):
        print("groups:  ", payloads)
