"""A loan desk: typed applications, rules, a person's decision, escalation, a webhook, and the story of each loan.

Start it in an empty folder: ``python desk.py``. README.md beside it says what to look at.
"""

import http.server
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import tampu

HERE = Path(__file__).parent
app = tampu.App("loans.db", private_webhooks=True)  # the receiver below is on this machine
calls: list[str] = []


class Receiver(http.server.BaseHTTPRequestHandler):
    """The bank's own system, which is called when a loan is decided."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        calls.append(body["message"]["payload"]["applicant"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@app.task(queue="loans")
def lend(applicant: str, amount: int) -> str:
    review = tampu.current().message.review
    if amount > 1000 and review is None:
        raise tampu.Review("loan")  # held until a person has decided; this attempt does not count
    rate = 9.9 if review is None or review.decision is None else review.decision.fields.get("rate", 9.9)
    return f"{applicant} gets {amount} at {rate} %"


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)  # noqa: TID251 - what people and other programs do is not an event here


def main() -> None:
    store = app.store
    store.topology.apply((HERE / "topology.yaml").read_text())
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    hook = {"url": f"http://127.0.0.1:{receiver.server_port}/decided"}
    store.rules.put("decided", queues="loans", trigger="reviewed", actions=[{"webhook": hook}])

    try:
        store.publish("loans", {"applicant": "Mallory", "amount": "a lot"}, type="lend")
    except tampu.InvalidMessage as error:
        print(f"refused at once: {error.field}")

    with tampu.working(app):
        small = lend.publish("Ada", 700)
        print(small.result(60))
        large, bad = lend.publish("Grace", 80_000), lend.publish("Eve", 5_000)
        until(lambda: len(store.reviews.list(role="credit")) == 2)
        for review in store.reviews.list(role="credit"):
            print("to decide:", store.reviews.get(review.id).sections[0].text)
        store.reviews.decide(bad.id, "refuse", by="bob", reason="no income")
        until(lambda: any(one.id == large.id for one in store.reviews.list(role="boss")))
        print("bob took too long: the boss may decide")
        store.reviews.decide(large.id, "approve", by="carol", reason="good customer", fields={"rate": 3.5})
        print(large.result(60))
        until(lambda: sorted(calls) == ["Eve", "Grace"])
        print("the bank was called for", ", ".join(sorted(calls)))
        until(lambda: store.stats("letters").ready == 1)

    story = store.trace(large.id)
    for message in story:
        events = [event.what + (f" by {event.worker}" if event.what == "reviewed" else "") for event in message.events]
        print(f"story: {message.queue}: {', '.join(events)}")
    dead = store.get(bad.id)
    print(f"Eve: {dead.state}, {dead.last_error}")
    for record in store.audit(action="review.decide").records:
        print(f"audit: {record.after['by']} {record.after['option']}")
    for queue in ("compliance", "letters", "reminders"):
        for lease in store.claim(queue, limit=100):
            store.ack(lease)
    receiver.shutdown()
    receiver.server_close()
    app.close()


if __name__ == "__main__":
    main()
