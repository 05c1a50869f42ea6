"""Many claim from one queue at once: no deadlock reaches anybody, nothing is delivered twice, nothing is left.

TAMPU_LONG=1 does it for a minute.
"""

from __future__ import annotations

import os
import threading
import time

import tampu
from tampu import Ack, Nack, NewMessage, Release
from tests.conformance.harness import counts

CLAIMERS = 16
SECONDS = 60.0 if os.environ.get("TAMPU_LONG") else 4.0


def test_sixteen_claimers_meet_no_unhandled_deadlock(url: str) -> None:
    end = time.monotonic() + SECONDS
    errors: list[BaseException] = []
    published, done = [0] * CLAIMERS, [0] * CLAIMERS
    in_flight: set[str] = set()
    lock = threading.Lock()

    def work(n: int) -> None:
        try:
            with tampu.open(url, maintenance=False) as store:
                turn = 0
                while time.monotonic() < end:
                    turn += 1
                    news = [
                        NewMessage(i, group=f"g{i % 3}", key=f"{n}/{turn}/{i}" if i % 5 == 0 else None)
                        for i in range(10)
                    ]
                    published[n] += len(store.publish_many(("jobs", "grouped", "ranked")[turn % 3], news))
                    leases = store.claim(("jobs", "grouped", "ranked"), limit=12, lease=60)
                    with lock:
                        got = {lease.id for lease in leases}
                        assert not got & in_flight, "delivered to two at once"
                        in_flight.update(got)
                    ends = [
                        Nack(lease, delay=0) if i % 7 == 3 and lease.attempt < 3 else Ack(lease)
                        for i, lease in enumerate(leases[:-1])
                    ]
                    with lock:
                        in_flight.difference_update(got)
                    outcomes = store.settle([*ends, *(Release(lease) for lease in leases[-1:] if turn % 9 == 0)])
                    outcomes += store.settle([Ack(lease) for lease in leases[-1:] if turn % 9])
                    assert all(outcome.ok for outcome in outcomes)
                    done[n] += sum(outcome.state == "done" for outcome in outcomes)
        except BaseException as error:
            errors.append(error)

    with tampu.open(url, maintenance=False) as store:
        store.queues.put("grouped", group_order=True)
        store.queues.put("ranked", ordering="priority")
        crew = [threading.Thread(target=work, args=(n,)) for n in range(CLAIMERS)]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
        assert errors == []
        rest = 0
        while leases := store.claim(("jobs", "grouped", "ranked"), limit=500):
            rest += sum(outcome.ok for outcome in store.settle([Ack(lease) for lease in leases]))
        assert sum(done) + rest == sum(published)
        for name in ("jobs", "grouped", "ranked"):
            assert set(counts(store, name)) == {"done"}
        assert [finding for finding in store.check() if finding[1] == "bad"] == []
        print(f"{sum(published)} messages, {rest} left at the end")
