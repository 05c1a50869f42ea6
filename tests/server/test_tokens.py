"""Bearer tokens of an identity provider: signature, issuer, audience and times are checked; its keys may rotate."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from jwt.algorithms import ECAlgorithm

from tampu.server.auth import bearer
from tests.server.conftest import Start
from tests.server.web import Web


class Issuer:
    """An identity provider on loopback."""

    def __init__(self) -> None:
        self.keys: dict[str, EllipticCurvePrivateKey] = {}
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                about = {"jwks_uri": f"{issuer.url}/keys"}
                told = json.dumps(about if "well-known" in self.path else {"keys": issuer.public()}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def public(self) -> list[dict[str, Any]]:
        return [{**ECAlgorithm.to_jwk(k.public_key(), as_dict=True), "kid": kid} for kid, k in self.keys.items()]

    def add(self, kid: str) -> None:
        self.keys[kid] = generate_private_key(SECP256R1())

    def token(self, kid: str = "a", **claims: Any) -> str:
        grants = [{"permissions": ["view", "publish"], "queues": ["orders.*"]}]
        whole = {
            "iss": self.url,
            "aud": "tampu",
            "sub": "ada",
            "exp": time.time() + 300,
            "tampu": {"tenant": "acme", "grants": grants},
            **claims,
        }
        return jwt.encode(whole, self.keys[kid], algorithm="ES256", headers={"kid": kid})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    made.add("a")
    yield made
    made.stop()


@pytest.fixture
def web(start: Start, issuer: Issuer) -> Web:
    return Web(start(oidc_issuer=issuer.url, oidc_audience="tampu", login_attempts=1000).url)


def test_a_token_has_its_tenant_and_its_permissions(web: Web, issuer: Issuer) -> None:
    ada = web.as_key(issuer.token())
    assert ada.get("/v1/me").json["tenant"] == "acme"
    assert ada.post("/v1/queues/orders.new/messages", {"n": 1}).status == 201
    assert ada.post("/v1/queues/other/messages", {"n": 1}).code == "forbidden"
    assert ada.post("/v1/claim", {"queues": "orders.new"}).code == "forbidden"
    assert ada.get("/v1/me", tampu_tenant="other").code == "forbidden"
    assert issuer.asked == 2, "its keys are cached"


def test_tokens_that_do_not_hold_are_refused(web: Web, issuer: Issuer) -> None:
    issuer.add("b")
    stranger = Issuer()
    stranger.add("a")
    bad = [
        issuer.token(aud="another"),
        issuer.token(iss="https://elsewhere.example"),
        issuer.token(exp=time.time() - 60),
        issuer.token(nbf=time.time() + 600),
        issuer.token(tampu=None),
        issuer.token(tampu={"tenant": "a b", "grants": []}),
        issuer.token(tampu={"tenant": "acme", "grants": [{"permissions": ["dance"]}]}),
        issuer.token()[:-4] + "AAAA",
        stranger.token(iss=issuer.url),
        jwt.encode({"iss": issuer.url, "aud": "tampu", "exp": time.time() + 60}, "", algorithm="none"),
        jwt.encode({"iss": issuer.url, "aud": "tampu", "exp": time.time() + 60}, "x" * 32, algorithm="HS256"),
        "a.b.c",
    ]
    stranger.stop()
    for token in bad:
        assert web.as_key(token).get("/v1/me").code == "unauthorized", token


def test_a_new_key_of_the_issuer_is_found_and_an_old_one_forgotten(
    web: Web, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer, "_AGAIN_SECONDS", 0.0)
    old = issuer.token("a")
    assert web.as_key(old).get("/v1/me").status == 200
    issuer.add("b")
    assert web.as_key(issuer.token("b")).get("/v1/me").status == 200
    late = issuer.token("a", sub="bob")
    del issuer.keys["a"]
    monkeypatch.setattr(bearer, "_KEYS_SECONDS", 0.0)
    assert web.as_key(late).get("/v1/me").code == "unauthorized"


def test_guessed_key_ids_do_not_make_the_server_ask_the_issuer_each_time(web: Web, issuer: Issuer) -> None:
    assert web.as_key(issuer.token()).get("/v1/me").status == 200
    asked = issuer.asked
    key = generate_private_key(SECP256R1())
    for n in range(10):
        token = jwt.encode({"iss": issuer.url}, key, algorithm="ES256", headers={"kid": f"guess{n}"})
        assert web.as_key(token).get("/v1/me").code == "unauthorized"
    assert issuer.asked <= asked + 2
