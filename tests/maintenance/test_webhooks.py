"""Webhooks: sent once it is stored, signed, tried again, only to public addresses, and slow receivers hold up none."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
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
from tampu.testing import FakeClock
from tests.conformance.harness import counts, until
from tests.servers.certificates import self_signed

SECRET = "0123456789abcdef"


class Receiver:
    """A server that answers as the test says."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
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
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
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


def test_while_a_secret_is_replaced_both_sign(receiver: Receiver) -> None:
    clock = FakeClock()
    with tampu.open("memory://", clock=clock) as store:
        access.core(store).private_webhooks = True
        new = "fedcba9876543210"
        store.rules.put("call", queues="orders", actions=[{"webhook": {"url": receiver.url}}])
        store.webhooks.put_secret(SECRET)
        for _ in range(2):  # a repeated call does not forget the secret before
            store.webhooks.put_secret(new, previous_for=datetime.timedelta(days=1))

        def signed_by() -> list[str]:
            before = len(receiver.got)
            store.publish("orders", 1)
            until(lambda: len(receiver.got) > before)
            _, headers, body = receiver.got[-1]
            at, *signatures = headers["tampu-signature"].split(",")
            return [
                secret
                for secret in (new, SECRET)
                if f"v1={hmac.new(secret.encode(), at[2:].encode() + b'.' + body, hashlib.sha256).hexdigest()}"
                in signatures
            ]

        assert signed_by() == [new, SECRET]
        clock.advance(86_401)
        assert signed_by() == [new]
        store.webhooks.put_secret(SECRET)
        assert signed_by() == [SECRET], "without a time, the secret before signs no more"
        with pytest.raises(tampu.InvalidConfig):
            store.webhooks.put_secret(new, previous_for=datetime.timedelta(days=31))


def test_the_certificate_of_a_receiver_must_be_for_its_name_and_trusted(
    store: tampu.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path, "DNS:hooks.example")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    asked: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: asked.append(name)
    receiver = Receiver(tls)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", receiver.port))])
    monkeypatch.setattr(sender, "_FIRST_PAUSE", 3600.0)

    def failed(host: str) -> str:
        store.rules.put("call", queues=host, actions=[{"webhook": {"url": f"https://{host}:{receiver.port}/x"}}])
        store.publish(host, 1)
        until(lambda: any(host in str(m.group) and m.state == "delayed" for m in store.messages(WEBHOOKS)))
        return next(str(m.last_error) for m in store.messages(WEBHOOKS) if host in str(m.group))

    try:
        assert "CERTIFICATE_VERIFY_FAILED" in failed("hooks.example"), "nobody vouches for it"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert "CertificateError" in failed("other.example"), "it is for another name"
        assert receiver.got == []
        store.rules.put(
            "call", queues="orders", actions=[{"webhook": {"url": f"https://hooks.example:{receiver.port}/x"}}]
        )
        store.publish("orders", 1)
        until(lambda: len(receiver.got) == 1)
        assert receiver.got[0][1]["host"] == f"hooks.example:{receiver.port}"
        assert set(asked) == {"hooks.example", "other.example"}
    finally:
        receiver.close()


def test_a_resolver_that_does_not_answer_holds_up_a_delivery_for_a_bounded_time(
    store: tampu.Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "RESOLVE_SECONDS", 0.1)
    monkeypatch.setattr(post, "_lookups", threading.BoundedSemaphore(2))
    monkeypatch.setattr(sender, "_FIRST_PAUSE", 3600.0)
    answers, real = threading.Event(), socket.getaddrinfo

    def lookup(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".example"):
            answers.wait(60)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    try:
        for n in range(3):
            store.rules.put(f"r{n}", queues="jobs", actions=[{"webhook": {"url": f"http://h{n}.example/"}}], go_on=True)
        store.publish("jobs", 1)
        until(lambda: [m.state for m in store.messages(WEBHOOKS)] == ["delayed"] * 3)
        assert all("was not resolved" in str(m.last_error) for m in store.messages(WEBHOOKS))
    finally:
        answers.set()
    store.rules.put("call", queues="orders", actions=[{"webhook": {"url": receiver.url}}])
    store.publish("orders", 1)
    until(lambda: len(receiver.got) == 1)


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
