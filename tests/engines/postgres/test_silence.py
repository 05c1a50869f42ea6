"""A server that says nothing any more, though the connection stands: it is `Unavailable`, and not waited for."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import tampu
from tampu.broker import access
from tampu.engines.postgres import connect
from tests.conformance.harness import payloads
from tests.servers.ports import free_port
from tests.servers.postgres import Postgres, databases

SLOW = """
CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
CREATE TRIGGER slow AFTER INSERT ON message EXECUTE FUNCTION take_long()
"""


class Way:
    """Leads to the server, until it is `silent`: what is sent is taken, and comes to nobody."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", free_port()))
        self.port = self._listening.getsockname()[1]
        self.silent = False
        self._ended = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._lead, args=(client,)))
            self._threads[-1].start()

    def _lead(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server.port)) as server:
            other = {client: server, server: client}
            while not self._ended:
                for come in select.select([client, server], [], [], 0.05)[0]:
                    with contextlib.suppress(OSError):
                        said = come.recv(65536)
                        if not said:
                            return
                        if not self.silent:
                            other[come].sendall(said)

    def close(self) -> None:
        self._ended = True
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def way(server: Postgres) -> Iterator[Way]:
    made = Way(server)
    yield made
    made.close()


@pytest.fixture
def store(url: str, server: Postgres, way: Way, monkeypatch: pytest.MonkeyPatch) -> Iterator[tampu.Store]:
    for limit in ("REPLY_SECONDS", "POOLED_SECONDS"):
        monkeypatch.setattr(connect, limit, 10)
    for module in ("engine", "read_pool"):
        monkeypatch.setattr(f"tampu.engines.sql.{module}._PATIENCE_SECONDS", 0.1)
    through = url.replace(f":{server.port}/", f":{way.port}/") + "&connect_timeout=2"
    with tampu.open(through, maintenance=False) as opened:
        opened.publish("jobs", "before")
        opened.stats("jobs")
        engine: Any = access.engine(opened)
        for db in (engine._db, *engine.readers._idle):
            assert db._wire.patience == 10
            db._wire.patience = 0.3
        yield opened


def _publish(store: tampu.Store) -> None:
    store.publish("jobs", 1)


def _publish_with_a_key(store: tampu.Store) -> None:
    store.publish("jobs", 1, key="k")


def _claim(store: tampu.Store) -> None:
    store.claim("jobs")


def _read(store: tampu.Store) -> None:
    store.stats("jobs")


@pytest.mark.parametrize("call", [_publish, _publish_with_a_key, _claim, _read])
def test_a_server_that_does_not_answer_is_not_waited_for(
    store: tampu.Store, way: Way, call: Callable[[tampu.Store], None]
) -> None:
    way.silent = True
    with pytest.raises(tampu.Unavailable):
        call(store)
    way.silent = False
    store.publish("jobs", "after")
    assert payloads(store.claim("jobs", limit=5))[-1] == "after"


@pytest.fixture
def mine(store: tampu.Store) -> Iterator[psycopg.Connection[Any]]:
    """The user's connection, to a server that takes longer to store than it may for a call of ours alone."""
    engine: Any = access.engine(store)
    with psycopg.connect(engine.place.conninfo, autocommit=True) as connection:
        connection.execute(SLOW)
        yield connection
        connection.execute("DROP FUNCTION take_long CASCADE")


@pytest.mark.parametrize("joined", [False, True])
def test_a_transaction_of_the_user_s_may_take_any_time(
    store: tampu.Store, mine: psycopg.Connection[Any], joined: bool
) -> None:
    with store.transaction(mine if joined else None) as tx:
        tx.execute("SELECT pg_sleep(1)")
        tx.publish("jobs", "after", key="k")
    assert payloads(store.claim("jobs", limit=5)) == ["before", "after"]
    with pytest.raises(tampu.Unavailable, match="may or may not have happened"):
        store.publish("jobs", "alone", key="l")


def test_a_lock_is_not_waited_for_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.engines.postgres.database.LOCK_SECONDS", 0.2)
    with tampu.open(url, maintenance=False) as store, tampu.open(url, maintenance=False) as holder:
        with holder.transaction() as tx:
            tx.publish("jobs", 1, key="k")
            with pytest.raises(tampu.Unavailable, match="lock"):
                store.publish("jobs", 2, key="k")
        assert store.publish("jobs", 3, key="k").duplicate


def test_what_the_user_says_of_the_connection_counts() -> None:
    def said(url: str) -> dict[str, Any]:
        return psycopg.conninfo.conninfo_to_dict(connect.target(url, None).conninfo)

    assert said("postgresql://host/db")["tcp_user_timeout"] == "30000"
    assert said("postgresql://host/db?tcp_user_timeout=5")["tcp_user_timeout"] == "5"
    assert said("postgresql://host/db?options=-cwork_mem%3D8MB%20-clock_timeout%3D1")["options"].split() == [
        "-cwork_mem=8MB",
        "-clock_timeout=1",
    ]


def test_the_user_s_own_limit_for_locks_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tampu.engines.postgres.database.LOCK_SECONDS", 240.0)
    url = databases.url()
    with (
        tampu.open(f"{url}%20-clock_timeout%3D100ms", maintenance=False) as store,
        tampu.open(url, maintenance=False) as holder,
        holder.transaction() as tx,
    ):
        tx.publish("jobs", 1, key="k")
        with pytest.raises(tampu.Unavailable, match="lock"):
            store.publish("jobs", 2, key="k")
