"""A process that is killed with SIGKILL right before the nth statement of a unit; the statements before it have run.

`Mortals` starts such processes by forking one that has everything imported. Each opens the store anew.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from redis.connection import AbstractConnection

import tampu
import tampu.engines.mariadb.database as mariadb
import tampu.engines.postgres.wire as postgres
import tampu.engines.redis.connection.node as redis
from tampu.broker import access
from tampu.broker.atomic import Unit
from tampu.engines.port import Together
from tampu.engines.sqlite import files
from tampu.engines.sqlite.engine import SqliteEngine
from tampu.maintenance.follower import Follower
from tampu.server import logs
from tampu.server.run import Running
from tampu.server.settings import ServerSettings

ROOT = Path(__file__).parents[2]
Found = tuple[str, list[Any], list[Any], Any]
NOTHING: Found = ("leased", [], [], None)
ALL: Found = ("done", [1], [2, 3], "here")


def send_unit(store: tampu.Store, nth: int, receipt: str) -> list[str]:
    """An ack, messages in two queues that are new, and a document, under a name. Returns the ids of the messages."""
    unit = Unit(access.verbs(store))
    unit.ack(receipt)
    mail = unit.publish(f"mails-{nth}", 1)
    bills = unit.publish_many(f"bills-{nth}", [2, tampu.NewMessage(3, delay=3600)])
    unit.put_document("cursor", f"of-{nth}", "here")
    access.run(store, unit.steps(f"the-unit-number-{nth}"))
    return [message.id for message in (mail.value, *bills.value)]


def found(store: tampu.Store, nth: int) -> Found:
    """What there is of the unit: `NOTHING`, `ALL`, or a part of it."""
    (job,) = store.messages(f"jobs-{nth}")
    document = store.get_document("cursor", f"of-{nth}")
    return (
        str(job.state),
        payloads_of(store, f"mails-{nth}"),
        payloads_of(store, f"bills-{nth}"),
        None if document is None else document.value,
    )


def publish_with_policies(store: tampu.Store, nth: int) -> None:
    """A broadcast, and a message that a rule copies."""
    store.publish("news", nth)
    store.publish("orders", nth, idempotency_key=f"order-{nth}")


def follow_once(store: tampu.Store, _nth: int) -> None:
    """One turn of the follower of rules."""
    Follower(access.core(store)).turn()


ACTS = {"publish": publish_with_policies, "follow": follow_once}


def payloads_of(store: tampu.Store, queue: str) -> list[Any]:
    try:
        return sorted(message.payload for message in store.messages(queue))
    except tampu.NotFound:
        return []


class Mortals:
    """Processes that send a unit to a store and die in the middle of it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def send_unit(self, nth: int, receipt: str) -> bool:
        """True if the unit has fewer than ``nth`` statements, so that its process lived. ``receipt`` may also be one of
        `ACTS`, which is then done in place of a unit."""
        ended = _ask(self._url, nth, receipt)
        assert ended in (0, -signal.SIGKILL), "it failed"
        return ended == 0

    def serve(self, nth: int, port: int) -> None:
        """Serve the file; returns when the server was killed in the middle of a unit."""
        assert _ask(self._url, nth, port) == -signal.SIGKILL


@functools.cache
def _forked() -> subprocess.Popen[str]:
    """The process that is forked, which all tests of this process share: its imports take two seconds."""
    words = [sys.executable, "-m", "tests.conformance.dying"]
    made = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close() -> None:
        with made:
            assert made.stdin is not None
            made.stdin.close()

    atexit.register(close)
    return made


def _ask(*request: Any) -> int:
    process = _forked()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([*request, dict(os.environ)]), file=process.stdin, flush=True)
    return int(process.stdout.readline())


class Death:
    """Comes before the nth statement of a thread, once it is awaited."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.thread = threading.main_thread()

    def is_here(self) -> bool:
        """Count a statement; True if it is the one not to be sent any more."""
        if self.left is None or threading.current_thread() is not self.thread:
            return False
        self.left -= 1
        return self.left == -1

    def come(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def watch_statements(death: Death) -> None:
    """Let death come between any two statements, whatever the engine. What was sent before has been answered."""
    connect, pg_send, my_send, redis_send = files.connect, postgres.Wire.send, mariadb.Db._send, redis.Node.send
    index_send = AbstractConnection.send_packed_command

    def traced(*given: Any) -> Any:
        made = connect(*given)
        made.set_trace_callback(lambda _: death.come() if death.is_here() else None)
        return made

    def pg(wire: Any, *given: Any) -> Any:
        if death.is_here():
            if wire._pending:
                wire.receive(wire._pending[-1])
            death.come()
        return pg_send(wire, *given)

    def my(wire: Any, *given: Any) -> None:
        if death.is_here():
            wire.flush()
            death.come()
        my_send(wire, *given)

    def commands(node: Any, given: Any) -> Any:
        lived = next((i for i in range(len(given)) if death.is_here()), None)
        if lived is None:
            return redis_send(node, given)
        if lived:
            redis_send(node, given[:lived]).replies()
        death.come()
        return None

    def packed(connection: Any, *given: Any, **options: Any) -> None:  # also those to the index of MariaDB
        if death.is_here():
            death.come()
        index_send(connection, *given, **options)

    places: tuple[tuple[Any, str, Any], ...] = (
        (files, "connect", traced),
        (postgres.Wire, "send", pg),
        (mariadb.Db, "_send", my),
        (redis.Node, "send", commands),
        (AbstractConnection, "send_packed_command", packed),
    )
    for place, name, watched in places:
        setattr(place, name, watched)


def live_and_die(url: str, nth: int, receipt: str) -> None:
    death = Death()
    watch_statements(death)
    with tampu.open(url, maintenance=False) as store:
        death.left = nth
        act = ACTS.get(receipt)
        if act is None:
            send_unit(store, nth, receipt)
        else:
            act(store, nth)
        death.left = None


def serve_and_die(file: str, nth: int, port: int) -> None:
    """A server that dies before the nth statement of the unit with the same number, or when it was committed."""
    death, run = Death(), SqliteEngine.run
    watch_statements(death)

    def watched(engine: SqliteEngine, calls: Any) -> Any:
        units = [call for call in calls if isinstance(call, Together)]
        if not any(getattr(each, "queue", None) == f"mails-{nth}" for unit in units for each in unit.calls):
            return run(engine, calls)
        death.left, death.thread = nth, threading.current_thread()
        replies = run(engine, calls)
        if death.left == 0:
            death.come()
        death.left = None
        Path(f"{file}.lived").touch()
        return replies

    Path(f"{file}.pid").write_text(str(os.getpid()))
    setattr(SqliteEngine, "run", watched)  # noqa: B010 - in this process only
    settings = ServerSettings(url=file, port=port, key_file=f"{file}.key", log_level="error")
    logs.set_up(settings)
    Running(settings).run()


def serve() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                *given, environment = json.loads(line)
                os.environ.clear()
                os.environ.update(environment)
                (live_and_die if isinstance(given[-1], str) else serve_and_die)(*given)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
