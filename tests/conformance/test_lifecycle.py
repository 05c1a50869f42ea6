"""Opening and closing: what a queue does after its end, in a fork, and from many threads."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tampu
from tampu import Unavailable
from tampu.broker.queue import Queue
from tests.conformance.house import House, payloads


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.publish("emails", 1),
        lambda q: q.publish_many("emails", [1]),
        lambda q: q.claim("emails"),
        lambda q: q.claim("emails", wait=60),
        lambda q: q.ack("emails/1.1"),
        lambda q: q.extend("emails/1.1", 5),
        lambda q: q.get("019b76da-a800-7000-8000-000000000001"),
        lambda q: q.cancel("019b76da-a800-7000-8000-000000000001"),
        lambda q: q.stats(),
        lambda q: q.messages("emails"),
        lambda q: q.journal(),
        lambda q: q.queues.list(),
        lambda q: q.queues.put("emails", lease=5),
        lambda q: q.check(),
    ],
)
def test_a_closed_queue_refuses_every_call(house: House, call: Callable[[Queue], Any]) -> None:
    q = house.open()
    q.publish("emails", 1)
    q.close()
    with pytest.raises(Unavailable) as refused:
        call(q)
    assert refused.value.code == "unavailable"


def test_closing_twice_is_fine(house: House) -> None:
    q = house.open()
    q.close()
    q.close()


def test_a_queue_is_a_context_manager(house: House) -> None:
    with tampu.open(house.url, keepers=False) as q:
        q.publish("emails", 1)
    with pytest.raises(Unavailable):
        q.publish("emails", 2)


def test_closing_while_others_publish_loses_nothing_acknowledged(house: House) -> None:
    """Each publish either answers, and is there, or says that the queue was closed."""
    q = house.open()
    began = threading.Event()
    answered: list[str] = []
    refused: list[str] = []

    def publish() -> None:
        try:
            while True:
                answered.append(q.publish("emails", 1).id)
                began.set()
        except tampu.TampuError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    began.wait(60)
    q.close()
    for thread in threads:
        thread.join(60)
    assert refused == ["unavailable"] * 4
    if not house.private:
        again = house.reopen()
        assert again.stats("emails").ready == len(answered)


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """More than some ways of waiting can tell apart."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


def test_a_process_with_a_thousand_open_files_is_woken(house: House, many_open_files: None) -> None:
    with tampu.open(house.url) as q, ThreadPoolExecutor(1) as pool:  # a thread that breaks fails the test
        waiting = pool.submit(q.claim, "emails", wait=60)
        q.publish("emails", "hello")
        assert payloads(waiting.result(60)) == ["hello"]


FORK = """
import os, sys, tampu
q = tampu.open(sys.argv[1], keepers=True)
q.publish("emails", 1)
child = os.fork()
if not child:
    codes = []
    for call in (lambda: q.publish("emails", 2), lambda: q.stats(), lambda: q.claim("emails")):
        try:
            call()
        except tampu.TampuError as error:
            codes.append(error.code)
    q.close()
    os._exit(0 if codes == ["unavailable"] * 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
q.publish("emails", 3)
assert q.stats("emails").ready == 2
q.close()
"""


def test_a_queue_opened_before_a_fork_is_refused_in_the_child(house: House) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, house.url], check=True, timeout=120)


def test_the_url_may_come_from_the_environment(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_URL", house.url)
    with tampu.open(keepers=False) as q:
        message = q.publish("emails", 1)
        assert q.get(message.id).payload == 1
