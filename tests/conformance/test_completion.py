"""Waiting for the end of a message, with the real clock."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import Harness, until

LONG = 60


@pytest.mark.parametrize("end", ["ack", "reject", "cancel"])
def test_waiting_for_a_result_ends_with_the_message(harness: Harness, end: str) -> None:
    store = harness.live()
    message = store.publish("jobs", 1)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(store.result, message.id, wait=LONG) for _ in range(2)]
        if end == "cancel":
            store.cancel(message.id)
        else:
            getattr(store, end)(store.claim("jobs")[0])
        ended = {"ack": "done", "reject": "dead", "cancel": "cancelled"}[end]
        assert [one.result(LONG / 2).state for one in waiting] == [ended, ended]


def test_waiting_for_a_result_returns_at_once_or_after_its_time(harness: Harness) -> None:
    store = harness.live()
    message = store.publish("jobs", 1)
    assert store.result(message.id).state == "ready"
    assert store.result(message.id, wait=0.01).state == "ready"
    store.ack(store.claim("jobs")[0], result={"a": 1})
    assert store.result(message.id, wait=LONG).result == {"a": 1}
    with pytest.raises(tampu.NotFound):
        store.result("00000000-0000-7000-8000-000000000000", wait=LONG)


def test_tasks_of_an_event_loop_wait_for_results(harness: Harness) -> None:
    async def main() -> list[str]:
        async with tampu.open_async(**harness.opening(live=True)) as store:
            messages = [await store.publish("jobs", n) for n in range(5)]
            waiting = [asyncio.create_task(store.result(message.id, wait=LONG)) for message in messages]
            await asyncio.sleep(0)
            await store.settle([tampu.Ack(lease) for lease in await store.claim("jobs", limit=5)])
            return [str(message.state) for message in await asyncio.gather(*waiting)]

    assert asyncio.run(main()) == ["done"] * 5


ACK = "import sys, tampu\nwith tampu.open(sys.argv[1], maintenance=False) as store: store.ack(store.claim('jobs')[0])"


def test_a_message_that_another_process_ends_is_noticed(shared_harness: Harness) -> None:
    store = shared_harness.live()
    message = store.publish("jobs", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.result, message.id, wait=LONG)
        subprocess.run([sys.executable, "-c", ACK, shared_harness.url], check=True, timeout=120)
        assert waiting.result(LONG / 2).state == "done"


def test_closing_ends_the_wait_with_the_message_as_it_was(direct_harness: Harness) -> None:
    store = direct_harness.live()
    message = store.publish("jobs", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.result, message.id, wait=LONG)
        until(lambda: access.core(store).completion.anybody)
        store.close()
        assert waiting.result(LONG / 2).state == "ready"
