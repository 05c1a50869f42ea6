"""Webhooks: sent once it is stored, signed, tried again, only to public addresses, and slow receivers hold up none."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.maintenance.webhooks import post, sender
from tampu.model.config import WEBHOOKS
from tests.conformance.harness import counts, until

SECRET = "0123456789abcdef"


class Receiver:
    """A server that answers as the test says."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                receiver.hold.wait(60)
                with contextlib.suppress(OSError):
                    self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                    self.send_header("Location", "/elsewhere")
                    self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tampu.Store]:
    monkeypatch.setenv("TAMPU_PRIVATE_WEBHOOKS", "true")
    monkeypatch.setattr(sender, "_FIRST_PAUSE", 0.01)
    with tampu.open(tmp_path / "jobs.db") as opened:
        yield opened


def states(store: tampu.Store) -> list[str]:
    """Of all deliveries."""
    try:
        return [message.state.value for message in store.messages(WEBHOOKS)]
    except tampu.NotFound:
        return []


def test_a_rule_sends_signed_webhooks_and_tries_again(store: tampu.Store, receiver: Receiver) -> None:
    assert not store.webhooks.has_secret()
    assert store.webhooks.put_secret(SECRET)
    hook = {"url": f"{receiver.url}/hook?a=b", "headers": {"X-Team": "shop"}}
    store.rules.put("call", queues="orders", when="message.payload.n > 0", actions=[{"webhook": hook}])
    store.rules.put("dead", queues="orders", trigger="dead", actions=[{"webhook": hook}])
    receiver.statuses = [500, 302]
    store.publish("orders", {"n": 0})
    message = store.publish("orders", {"n": 7}, type="order", labels={"a": "b"}, delay=0.01, headers={"h": "1"})
    until(lambda: states(store) == ["done"])
    assert [path for path, _, _ in receiver.got] == ["/hook?a=b"] * 3, "a redirect is not followed"
    _, headers, body = receiver.got[-1]
    sent = json.loads(body)
    assert (sent["rule"], sent["trigger"]) == ("call", "published")
    assert (sent["message"]["payload"], sent["message"]["type"]) == ({"n": 7}, "order")
    assert (headers["x-team"], headers["content-type"]) == ("shop", "application/json")
    at, _, signed = headers["tampu-signature"].partition(",v1=")
    expected = hmac.new(SECRET.encode(), at[2:].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert signed == expected
    assert len({headers["tampu-delivery"] for _, headers, _ in receiver.got}) == 1
    assert SECRET not in str(store.audit().records)
    until(lambda: store.get(message.id).state == "ready")
    for lease in store.claim("orders", limit=2):
        store.reject(lease, error="broken")
    until(lambda: len(receiver.got) == 5)
    ended = json.loads(receiver.got[-1][2])
    assert (ended["rule"], ended["message"]["state"], ended["message"]["error"]) == ("dead", "dead", "broken")
    until(lambda: store.agents.get("webhooks").done >= 3)


def test_private_addresses_are_refused_after_the_name_is_resolved(
    store: tampu.Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    access.core(store).private_webhooks = False
    port = receiver.url.rpartition(":")[2]
    hook = {"url": f"http://public.example:{port}/"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", int(port)))])
    store.rules.put("call", queues="orders", actions=[{"webhook": hook}])
    store.publish("orders", 1)
    until(lambda: states(store) == ["dead"])
    (dead,) = store.messages(WEBHOOKS, state="dead")
    assert dead.reason == sender.NOT_PUBLIC
    assert "127.0.0.1, which is not public" in str(dead.last_error)
    assert receiver.got == []
    access.core(store).private_webhooks = True
    store.replay(WEBHOOKS, ids=[dead.id])
    until(lambda: len(receiver.got) == 1)
    assert receiver.got[0][1]["host"] == f"public.example:{port}", "it connects to the address that was checked"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("127.0.0.1", False), ("10.1.2.3", False),
        ("192.168.0.1", False), ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False),
        ("224.0.0.1", False), ("::1", False), ("fe80::1", False), ("fc00::1", False), ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False), ("2002:7f00:1::", False), ("64:ff9b::5db8:d822", True), ("::", False),
    ],
)  # fmt: skip
def test_only_public_addresses_are_called(address: str, public: bool) -> None:
    assert post.is_public(ipaddress.ip_address(address)) is public


def test_a_slow_receiver_holds_up_no_other_and_no_close(store: tampu.Store, receiver: Receiver) -> None:
    slow = Receiver()
    slow.hold.clear()
    try:
        for name, url in (("a", slow.url), ("b", receiver.url)):
            store.rules.put(name, actions=[{"webhook": {"url": url}}], go_on=True)
        store.publish_many("orders", range(20))
        until(lambda: len(receiver.got) == 20)
        assert len(slow.got) <= 2
        assert counts(store, "orders") == {"ready": 20}
        store.close()
    finally:
        slow.close()


def test_an_alert_sends_its_changes(store: tampu.Store, receiver: Receiver) -> None:
    store.alerts.put("old", measure="oldest", above=0, queues="jobs", webhook={"url": receiver.url})
    store.publish("jobs", 1)
    store.agents.run("alerts")
    until(lambda: receiver.got)
    sent = json.loads(receiver.got[0][2])
    assert (sent["alert"], [one["target"] for one in sent["fired"]]) == ("old", ["jobs"])


def test_what_cannot_be_called_is_refused(store: tampu.Store) -> None:
    for url in (
        "",
        "ftp://a/",
        "http://",
        "https://u:p@a.example/",
        "http://a b/",
        "http://a:0/",
        "http://a/\n",
        "x" * 9,
    ):
        with pytest.raises(tampu.InvalidConfig):
            store.rules.put("r", actions=[{"webhook": {"url": url}}])
    for headers in (
        {"Host": "x"},
        {"a b": "x"},
        {"x": "a\r\nb"},
        {"Tampu-Delivery": "x"},
        {str(n): "" for n in range(21)},
    ):
        with pytest.raises(tampu.InvalidConfig):
            store.alerts.put("a", measure="dead", above=1, webhook={"url": "http://a.example", "headers": headers})
    for secret in ("short", "x" * 257, "ü" * 20, 5):
        with pytest.raises(tampu.InvalidConfig):
            store.webhooks.put_secret(secret)  # type: ignore[arg-type]  # refused
    for call in (lambda: store.publish(WEBHOOKS, 1), lambda: store.claim(WEBHOOKS), lambda: store.queues.put(WEBHOOKS)):
        with pytest.raises(tampu.InvalidMessage):
            call()
    store.rules.put("large", queues="jobs", actions=[{"webhook": {"url": "http://a.example/"}}])
    large = store.publish("jobs", "x" * 200_000)
    assert "at most" in large.headers["tampu-rule-error"]
