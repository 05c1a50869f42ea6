"""Waiting for the end of a message, with the real clock."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import tampu
from tampu.broker import access
from tests.conformance.house import House, until

LONG = 60


@pytest.mark.parametrize("end", ["ack", "reject", "cancel"])
def test_result_is_waited_for_until_the_message_ends(house: House, end: str) -> None:
    q = house.live()
    message = q.publish("jobs", 1)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(q.result, message.id, wait=LONG) for _ in range(2)]
        if end == "cancel":
            q.cancel(message.id)
        else:
            getattr(q, end)(q.claim("jobs")[0])
        ended = {"ack": "done", "reject": "dead", "cancel": "cancelled"}[end]
        assert [one.result(LONG / 2).state for one in waiting] == [ended, ended]


def test_result_of_what_has_ended_is_there_at_once_and_of_what_has_not_when_the_time_is_over(house: House) -> None:
    q = house.live()
    message = q.publish("jobs", 1)
    assert q.result(message.id).state == "ready"
    assert q.result(message.id, wait=0.01).state == "ready"
    q.ack(q.claim("jobs")[0], result={"a": 1})
    assert q.result(message.id, wait=LONG).result == {"a": 1}
    with pytest.raises(tampu.NotFound):
        q.result("00000000-0000-7000-8000-000000000000", wait=LONG)


def test_results_are_waited_for_by_tasks_of_a_loop(house: House) -> None:
    async def main() -> list[str]:
        async with tampu.open_async(**house.opening(live=True)) as q:
            messages = [await q.publish("jobs", n) for n in range(5)]
            waiting = [asyncio.create_task(q.result(message.id, wait=LONG)) for message in messages]
            await asyncio.sleep(0)
            await q.settle([tampu.Ack(lease) for lease in await q.claim("jobs", limit=5)])
            return [str(message.state) for message in await asyncio.gather(*waiting)]

    assert asyncio.run(main()) == ["done"] * 5


ACK = "import sys, tampu\nwith tampu.open(sys.argv[1], keepers=False) as q: q.ack(q.claim('jobs')[0])"


def test_end_brought_about_by_another_process_is_noticed(shared_house: House) -> None:
    q = shared_house.live()
    message = q.publish("jobs", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(q.result, message.id, wait=LONG)
        subprocess.run([sys.executable, "-c", ACK, shared_house.url], check=True, timeout=120)
        assert waiting.result(LONG / 2).state == "done"


def test_closing_ends_the_wait_with_the_message_as_it_was(direct_house: House) -> None:
    q = direct_house.live()
    message = q.publish("jobs", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(q.result, message.id, wait=LONG)
        until(lambda: access.core(q).ends.anybody)
        q.close()
        assert waiting.result(LONG / 2).state == "ready"
