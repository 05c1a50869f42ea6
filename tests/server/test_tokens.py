"""Bearer tokens of an identity provider: signature, issuer, audience and times are checked; its keys may rotate."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

import tampu
from tampu.server.auth import bearer
from tampu.server.settings import ServerSettings
from tampu.wire import frames
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import Stall


class Issuer:
    """An identity provider on loopback."""

    def __init__(self) -> None:
        self.keys: dict[str, EllipticCurvePrivateKey | RSAPrivateKey] = {}
        self.asked = 0
        self.says: Any = None
        """Instead of what it should."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                about = {"jwks_uri": f"{issuer.url}/keys"}
                whole = about if "well-known" in self.path else {"keys": issuer.public()}
                body = json.dumps(whole if issuer.says is None else issuer.says).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def public(self) -> list[dict[str, Any]]:
        return [{**_public(key), "kid": kid} for kid, key in self.keys.items()]

    def add(self, kid: str) -> None:
        self.keys[kid] = generate_private_key(SECP256R1())

    def token(self, kid: str = "a", algorithm: str = "ES256", **claims: Any) -> str:
        grants = [{"permissions": ["view", "publish"], "queues": ["orders.*"]}]
        whole = {
            "iss": self.url,
            "aud": "tampu",
            "sub": "ada",
            "exp": time.time() + 300,
            "tampu": {"tenant": "acme", "grants": grants},
            **claims,
        }
        return jwt.encode(whole, self.keys[kid], algorithm=algorithm, headers={"kid": kid})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _public(key: EllipticCurvePrivateKey | RSAPrivateKey) -> dict[str, Any]:
    if isinstance(key, RSAPrivateKey):
        return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return ECAlgorithm.to_jwk(key.public_key(), as_dict=True)


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
    monkeypatch.setattr(bearer, "_REREAD_SECONDS", 0.0)
    old = issuer.token("a")
    assert web.as_key(old).get("/v1/me").status == 200
    issuer.add("b")
    assert web.as_key(issuer.token("b")).get("/v1/me").status == 200
    late = issuer.token("a", sub="bob")
    del issuer.keys["a"]
    monkeypatch.setattr(bearer, "_KEYS_SECONDS", 0.0)
    assert web.as_key(late).get("/v1/me").code == "unauthorized"


def test_guessed_key_ids_do_not_make_the_server_ask_the_issuer_each_time(
    web: Web, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer, "_REREAD_SECONDS", 3600.0)
    assert web.as_key(issuer.token()).get("/v1/me").status == 200
    asked = issuer.asked
    key = generate_private_key(SECP256R1())
    for n in range(10):
        token = jwt.encode({"iss": issuer.url}, key, algorithm="ES256", headers={"kid": f"guess{n}"})
        assert web.as_key(token).get("/v1/me").code == "unauthorized"
    assert issuer.asked == asked


@pytest.mark.parametrize(
    "says", [{}, [], {"jwks_uri": 1}, {"jwks_uri": "file:///etc/passwd"}, {"keys": 1}, {"keys": [1]}, {"keys": []}, "x"]
)
@pytest.mark.parametrize("discovered", [True, False])
def test_an_issuer_that_makes_no_sense_is_reported_as_one_that_is_away(
    start: Start, issuer: Issuer, says: Any, discovered: bool
) -> None:
    issuer.says = says
    url = None if discovered else f"{issuer.url}/keys"
    web = Web(start(oidc_issuer=issuer.url, oidc_audience="tampu", oidc_jwks_url=url).url)
    answer = web.as_key(issuer.token()).get("/v1/me")
    assert (answer.status, answer.code) == (503, "unavailable")
    assert "issuer" in answer.json["detail"]


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
def test_an_rsa_key_that_does_not_name_its_algorithm_is_good_for_all_of_its_kind(
    web: Web, issuer: Issuer, algorithm: str
) -> None:
    issuer.keys["a"] = generate_rsa(65537, 2048)
    assert web.as_key(issuer.token(algorithm=algorithm)).get("/v1/me").status == 200


def test_an_rsa_key_that_names_its_algorithm_is_good_for_no_other(web: Web, issuer: Issuer) -> None:
    key = issuer.keys["a"] = generate_rsa(65537, 2048)
    issuer.says = {"jwks_uri": f"{issuer.url}/keys", "keys": [{**_public(key), "kid": "a", "alg": "RS256"}]}
    assert web.as_key(issuer.token(algorithm="RS256")).get("/v1/me").status == 200
    assert web.as_key(issuer.token(algorithm="PS256")).get("/v1/me").code == "unauthorized"


def test_a_token_with_a_header_as_deep_as_can_be_is_refused(web: Web) -> None:
    deep = _base64(b'{"alg":"RS256","x":' + b"[" * 5000)
    assert web.as_key(f"{deep}.e30.e30").get("/v1/me").code == "unauthorized"


@pytest.mark.parametrize("of", ["poll", "stream"])
def test_what_waits_ends_with_its_token(start: Start, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    monkeypatch.setattr(bearer, "_LEEWAY", 0)
    node = start(oidc_issuer=issuer.url, oidc_audience="tampu", login_attempts=1000)
    for seconds in (3, 15, 60):  # on a busy machine it may have ended before anybody waits
        tampu = {"tenant": "acme", "grants": [{"permissions": ["consume"]}]}
        token = issuer.token(exp=int(time.time()) + seconds, tampu=tampu)
        ended = asyncio.run(_stream(node, token)) if of == "stream" else _poll(node, token)
        if ended is not None:
            assert ended == ("unauthorized" if of == "poll" else frames.UNAUTHORIZED)
            return
    raise AssertionError("nobody ever waited")


def _poll(node: Stall, token: str) -> str | None:
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(Web(node.url, token).post, "/v1/claim", {"queues": "jobs", "wait": 60})
        until(lambda: len(node.state.polls) == 1 or poll.done())
        return None if poll.done() else poll.result(90).code


async def _stream(node: Stall, token: str) -> int | None:
    headers = {"authorization": f"Bearer {token}"}
    try:
        async with aiohttp.ClientSession(headers=headers) as session, session.ws_connect(node.url + frames.PATH) as ws:
            await ws.receive(90)
            return ws.close_code
    except aiohttp.WSServerHandshakeError:
        return None


@pytest.mark.parametrize(
    "exp", [10**400, 1e300, "1e400", float("inf"), [1], None, True, -(10**400)], ids=lambda v: f"{v!r:.12}"
)
def test_any_end_of_a_token_is_an_answer(web: Web, issuer: Issuer, exp: Any) -> None:
    issuer.add("a")
    answer = web.as_key(issuer.token(exp=exp)).get("/v1/me")
    assert answer.status == (200 if isinstance(exp, int | float) and 1 < exp < float("inf") else 401)


@pytest.mark.parametrize("exp", [float("inf"), [1]], ids=repr)
def test_an_older_library_that_lets_an_error_through_makes_no_other_answer(
    web: Web, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, exp: Any
) -> None:
    """PyJWT 2.10, the oldest that is allowed, only converts a `ValueError` of this."""
    monkeypatch.setattr(jwt.PyJWT, "_validate_exp", lambda _self, payload, *_: int(payload["exp"]))
    assert web.as_key(issuer.token(exp=exp)).get("/v1/me").code == "unauthorized"


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_token_that_the_issuers_key_is_too_small_for_is_refused(web: Web, issuer: Issuer) -> None:
    """Nobody has to sign it. The library's own error is a `ValueError`."""
    number = (1 << 512) - 569
    key = {"kty": "RSA", "kid": "a", "e": "AQAB", "n": _base64(number.to_bytes(64))}
    issuer.says = {"jwks_uri": f"{issuer.url}/keys", "keys": [key]}
    head = _base64(b'{"alg":"PS512","kid":"a"}')
    assert web.as_key(f"{head}.e30.{_base64(bytes(64))}").get("/v1/me").code == "unauthorized"


def test_a_subject_that_is_no_text_has_an_answer(web: Web, issuer: Issuer) -> None:
    """JSON can escape half a character, which no encoding can write."""
    assert web.as_key(issuer.token(sub="\ud800")).get("/v1/me").json["name"] == "\\ud800"


def test_keys_for_other_uses_sign_no_tokens(web: Web, issuer: Issuer) -> None:
    issuer.add("a")
    issuer.add("b")
    public, other = issuer.public()
    for more, status in (({"use": "enc"}, 401), ({"key_ops": ["encrypt"]}, 401), ({"use": "sig"}, 200)):
        issuer.says = {"keys": [{**public, **more}, other], "jwks_uri": f"{issuer.url}/keys"}
        fresh = bearer.Issuer(web_settings(issuer))

        async def check(fresh: bearer.Issuer = fresh) -> int:
            try:
                await fresh.check(issuer.token())
                return 200
            except tampu.Unauthorized:
                return 401

        assert asyncio.run(check()) == status, more


def test_a_token_of_all_tenants_is_known_in_a_bounded_number(web: Web) -> None:
    known = bearer.Bearer(bearer.Claims("*", ()), "ada", time.monotonic() + 60)
    for n in range(20_000):
        known.as_tenant(f"t{n}")
    assert len(known.callers) <= 100


def test_good_tokens_do_not_wait_for_the_look_for_an_unknown_key(
    web: Web, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.add("a")
    assert web.as_key(issuer.token()).get("/v1/me").status == 200
    issuer.add("b")
    asked, go = threading.Event(), threading.Event()
    fetch = bearer.Issuer._fetch

    def slowly(self: bearer.Issuer) -> Any:
        asked.set()
        assert go.wait(60)
        return fetch(self)

    monkeypatch.setattr(bearer.Issuer, "_fetch", slowly)
    monkeypatch.setattr(bearer, "_REREAD_SECONDS", 0.0)
    with ThreadPoolExecutor(1) as pool:
        unknown = pool.submit(web.as_key(issuer.token("b")).get, "/v1/me")
        assert asked.wait(60)
        try:
            other = issuer.token(sub="grace")  # not cached
            assert web.as_key(other).get("/v1/me").status == 200
        finally:
            go.set()
        assert unknown.result(60).status == 200


def web_settings(issuer: Issuer) -> ServerSettings:
    return ServerSettings(oidc_issuer=issuer.url, oidc_audience="tampu")
