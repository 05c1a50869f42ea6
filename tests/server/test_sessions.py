"""Sessions of browsers: random, kept as hashes, ended on all nodes. Reading the store makes nobody admin."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
import structlog

from tampu.engines.port import PutDocument
from tampu.server.auth import sessions
from tests.conformance.harness import FakeClock, until
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import Server, Stall


def sign_in(web: Web, token: str) -> str:
    answer = web.as_key(None).post("/v1/session", {"key": token})
    assert answer.status == 200
    return answer.headers["set-cookie"].split(";")[0]


def status(web: Web, cookie: str) -> int:
    return web.as_key(None).get("/v1/me", cookie=cookie).status


def test_what_the_store_has_signs_nobody_in(stall: Stall, web: Web) -> None:
    """The store had a secret that signed cookies; whoever read a backup was admin for as long as they liked."""
    cookie = sign_in(web, stall.token)
    token = cookie.partition("=")[2]
    stored = [(document.name, document.value) for document in stall.core.engine.all_documents()]
    assert not any(token.encode() in value or token in name for name, value in stored)
    assert not any(b"eyJ" in value for _, value in stored)
    assert hashlib.sha256(token.encode()).hexdigest() in [name for name, _ in stored]
    for name, _ in stored:
        assert status(web, f"{sessions.COOKIE}={name}") == 401


@pytest.mark.parametrize("mode", [0o600, 0o644], ids=oct)
def test_a_store_that_other_users_can_read_is_warned_of(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "jobs.db"
    path.touch(mode)
    path.chmod(mode)
    with structlog.testing.capture_logs() as events:
        Server(url=str(path)).stop()
    assert [event["event"] for event in events if event["event"] == "store_readable"] == ["store_readable"] * (
        mode == 0o644
    )


@pytest.mark.parametrize("path", ["/v1/session", "/signout"])
def test_signing_out_ends_the_session_everywhere(start: Start, tmp_path: Path, path: str) -> None:
    here, there = (start(url=str(tmp_path / "jobs.db"), key_file=tmp_path / "key") for _ in range(2))
    webs = [Web(node.url, here.token) for node in (here, there)]
    cookie, other = (sign_in(webs[0], here.token) for _ in range(2))
    assert [status(web, cookie) for web in webs] == [200, 200]
    nobody = webs[0].as_key(None)
    foreign = nobody.request("DELETE" if "v1" in path else "POST", path, cookie=cookie, sec_fetch_site="cross-site")
    assert foreign.code == "forbidden"
    assert nobody.request("DELETE" if "v1" in path else "POST", path, cookie=cookie).status in (200, 303)
    assert status(webs[0], cookie) == 401
    until(lambda: status(webs[1], cookie) == 401)  # a copy of the cookie is worth nothing
    assert [status(web, other) for web in webs] == [200, 200]


def test_a_session_that_is_stored_for_longer_than_twelve_hours_is_none(stall: Stall, web: Web) -> None:
    cookie = sign_in(web, stall.token)
    (stored,) = stall.core.engine.documents(sessions.KIND, "*")
    longer = msgspec.json.decode(stored.value)
    longer["until_us"] += 10 * 365 * 86_400_000_000
    assert status(web, cookie) == 200
    stall.core.coalescer.submit(PutDocument(sessions.KIND, "*", stored.name, msgspec.json.encode(longer)))
    until(lambda: status(web, cookie) == 401)


def test_a_session_ends_after_twelve_hours(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    web = Web(node.url, node.token)
    cookie = sign_in(web, node.token)
    clock.advance(sessions.SESSION_SECONDS - 3600)
    assert status(web, cookie) == 200
    node.state.authenticator.sessions.forget()
    clock.advance(3600)
    assert status(web, cookie) == 401
    sign_in(web, node.token)
    left = node.core.engine.documents(sessions.KIND, "*")
    assert len(left) == 1, "the next session removes those that have ended"


def test_a_key_has_a_bounded_number_of_sessions(stall: Stall, web: Web) -> None:
    cookies = [sign_in(web, stall.token) for _ in range(22)]
    statuses = [status(web, cookie) for cookie in cookies]
    assert statuses == [401] * 2 + [200] * 20


def test_all_sessions_and_links_can_be_ended(stall: Stall, web: Web) -> None:
    cookies = [sign_in(web, stall.token) for _ in range(3)]
    link = sessions.make_link(stall.core, stall.token.split("_")[1])
    assert sessions.end_all(stall.core) == 3
    until(lambda: [status(web, cookie) for cookie in cookies] == [401] * 3)
    assert web.as_key(None).get(f"/signin?token={link}").status == 401
    assert web.get("/v1/me").status == 200, "keys stay"


def test_a_link_works_once_on_any_node_and_for_a_quarter_of_an_hour(start: Start, tmp_path: Path) -> None:
    clock = FakeClock()
    nodes = [start(url=str(tmp_path / "jobs.db"), key_file=tmp_path / "key", clock=clock) for _ in range(2)]
    key_id = nodes[0].token.split("_")[1]
    link, late = (sessions.make_link(nodes[0].core, key_id) for _ in range(2))
    webs = [Web(node.url) for node in nodes]
    assert [web.get(f"/signin?token={link}").status for web in reversed(webs)] == [303, 401]
    clock.advance(sessions.LINK_SECONDS)
    assert webs[0].get(f"/signin?token={late}").status == 401
