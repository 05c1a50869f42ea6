"""What a trace shows of what policies do; tests/conformance/test_trace.py has the rest."""

import tampu


def test_a_trace_shows_the_decision_of_a_person_and_no_timers() -> None:
    with tampu.open("memory://") as store:
        message = store.publish("loans", 1, review={"deadline": "4h", "on_timeout": "refuse"}, correlation_id="loan-1")
        store.reviews.decide(message.id, "approve", by="ada", reason="fine")
        (lease,) = store.claim("loans", worker="w")
        store.ack(lease)
        for id in ("loan-1", message.id):
            (shown,) = store.trace(id)
            assert [(event.what, event.worker, event.detail) for event in shown.events] == [
                ("published", None, None),
                ("reviewed", "ada", "approve: fine"),
                ("done", None, None),
            ]
