"""Opening and closing: what a store does after close, in a fork, and from many threads."""

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
from tampu.broker.store import Store
from tests.conformance.harness import Harness, payloads

CALLS: list[Callable[[Store], Any]] = [
    lambda store: store.publish("emails", 1),
    lambda store: store.publish_many("emails", [1]),
    lambda store: store.claim("emails"),
    lambda store: store.claim("emails", wait=60),
    lambda store: store.ack("emails/1.1"),
    lambda store: store.extend("emails/1.1", 5),
    lambda store: store.get("019b76da-a800-7000-8000-000000000001"),
    lambda store: store.cancel("019b76da-a800-7000-8000-000000000001"),
    lambda store: store.stats(),
    lambda store: store.messages("emails"),
    lambda store: store.journal(),
    lambda store: store.queues.list(),
    lambda store: store.queues.put("emails", lease=5),
    lambda store: store.check(),
]


def test_a_closed_store_refuses_every_call(harness: Harness) -> None:
    store = harness.open()
    store.publish("emails", 1)
    store.close()
    for call in CALLS:
        with pytest.raises(Unavailable) as refused:
            call(store)
        assert refused.value.code == "unavailable"


def test_closing_twice_is_fine(harness: Harness) -> None:
    store = harness.open()
    store.close()
    store.close()


def test_a_store_is_a_context_manager(harness: Harness) -> None:
    with tampu.open(harness.url, maintenance=False) as store:
        store.publish("emails", 1)
    with pytest.raises(Unavailable):
        store.publish("emails", 2)


def test_closing_while_others_publish_loses_nothing_acknowledged(harness: Harness) -> None:
    """Each publish either answers, and is there, or says that the queue was closed."""
    store = harness.open()
    began = threading.Event()
    answered: list[str] = []
    refused: list[str] = []

    def publish() -> None:
        try:
            while True:
                answered.append(store.publish("emails", 1).id)
                began.set()
        except tampu.TampuError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    began.wait(60)
    store.close()
    for thread in threads:
        thread.join(60)
    assert refused == ["unavailable"] * 4
    if not harness.private:
        again = harness.reopen()
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


def test_a_process_with_a_thousand_open_files_is_woken(harness: Harness, many_open_files: None) -> None:
    with tampu.open(harness.url) as store, ThreadPoolExecutor(1) as pool:  # a thread that breaks fails the test
        waiting = pool.submit(store.claim, "emails", wait=60)
        store.publish("emails", "hello")
        assert payloads(waiting.result(60)) == ["hello"]


FORK = """
import os, sys, tampu
store = tampu.open(sys.argv[1], maintenance=True)
store.publish("emails", 1)
child = os.fork()
if not child:
    codes = []
    for call in (lambda: store.publish("emails", 2), lambda: store.stats(), lambda: store.claim("emails")):
        try:
            call()
        except tampu.TampuError as error:
            codes.append(error.code)
    store.close()
    os._exit(0 if codes == ["unavailable"] * 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
store.publish("emails", 3)
assert store.stats("emails").ready == 2
store.close()
"""


def test_a_store_opened_before_a_fork_is_refused_in_the_child(harness: Harness) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, harness.url], check=True, timeout=120)


def test_the_url_may_come_from_the_environment(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_URL", harness.url)
    with tampu.open(maintenance=False) as store:
        message = store.publish("emails", 1)
        assert store.get(message.id).payload == 1
