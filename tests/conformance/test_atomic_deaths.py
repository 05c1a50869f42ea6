"""Whoever dies between two statements of a unit leaves all of it or nothing, and sent again it takes effect once."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.engines.sqlite import files
from tests.conformance.dying import ALL, NOTHING, Death, Mortals, found, send_unit
from tests.conformance.harness import Harness, inside, until

MOST = 500


def test_a_process_that_dies_between_any_two_statements_leaves_all_of_its_unit_or_nothing(
    direct_harness: Harness,
) -> None:
    receipts: list[str] = []
    store = direct_harness.live()
    mortals = Mortals(direct_harness.url)
    lived = False
    while not lived:
        nth = len(receipts)
        assert nth < MOST
        store.publish(f"jobs-{nth}", "work")
        (lease,) = store.claim(f"jobs-{nth}", lease=86_400)
        receipts.append(lease.receipt)
        lived = mortals.send_unit(nth, lease.receipt)
    assert len(receipts) > 3, "there are statements to die between"
    direct_harness.close()
    store = direct_harness.live()
    units = range(len(receipts))
    if "atomic:eventual" in inside(store).engine.capabilities:
        until(lambda: all(found(store, nth) in (NOTHING, ALL) for nth in units))
    seen = [found(store, nth) for nth in units]
    assert all(one in (NOTHING, ALL) for one in seen), seen
    assert (seen[0], seen[-1]) == (NOTHING, ALL), "the first died before it sent anything, and the last lived"
    for nth in units:
        send_unit(store, nth, receipts[nth])
        assert found(store, nth) == ALL
    published = [t for t in store.journal(limit=10_000).transitions if t.verb == "publish"]
    assert len(published) == 4 * len(receipts)


def test_a_statement_that_fails_inside_a_unit_leaves_nothing_of_it_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    death, connect, failed, over = Death(), files.connect, [], False

    def interrupted(*given: Any) -> Any:
        made = connect(*given)
        made.set_trace_callback(lambda _: made.interrupt() if death.is_here() else None)
        return made

    monkeypatch.setattr(files, "connect", interrupted)
    with tampu.open("memory://", maintenance=False) as store:
        for nth in range(MOST):
            store.publish(f"jobs-{nth}", "work")
            (lease,) = store.claim(f"jobs-{nth}", lease=86_400)
            death.left = nth
            try:
                send_unit(store, nth, lease.receipt)
            except tampu.StorageError:
                failed.append(nth)
            over, death.left = death.left >= 0, None
            assert found(store, nth) == (NOTHING if nth in failed else ALL)
            send_unit(store, nth, lease.receipt)
            assert found(store, nth) == ALL
            if over:
                break
    assert over
    assert len(failed) > 10
