"""Keys: shown once, kept as a hash, rotated with overlap, revoked everywhere within a second."""

from __future__ import annotations

import asyncio
import logging
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

import tampu
from tampu.broker import access
from tampu.engines.port import PutDocument, Together
from tampu.server.auth import first_key, key_cache, keys, sessions
from tampu.server.settings import ServerSettings
from tests.conformance.harness import FakeClock, until
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import Stall


def test_the_first_start_leaves_an_admin_key_only_its_owner_can_read(stall: Stall) -> None:
    path = first_key.path_of(stall.settings)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Web(stall.url, stall.token).get("/v1/me").json["permissions"] == [
        "view", "publish", "consume", "operate", "review", "admin",
    ]  # fmt: skip


def test_the_next_start_keeps_the_key(start: Start, tmp_path: Path) -> None:
    first = start(url=str(tmp_path / "jobs.db"))
    token = first.token
    second = start(url=str(tmp_path / "jobs.db"), key_file=first_key.path_of(first.settings))
    assert second.token == token
    assert Web(second.url, token).get("/v1/me").status == 200


def test_a_start_that_died_before_the_store_knew_the_key_is_finished_by_the_next(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "left.key"
    token = first_key._write(path, 0)
    node = start(key_file=path)
    assert node.token == token
    assert Web(node.url, token).get("/v1/me").status == 200


def test_a_key_file_that_others_can_read_is_refused(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "open.key"
    path.write_text("tampu_x")
    path.chmod(0o644)
    with pytest.raises(tampu.InvalidConfig, match="other users can read"):
        start(key_file=path)


def test_a_node_that_comes_second_takes_its_key_back(start: Start, tmp_path: Path) -> None:
    first = start(url=str(tmp_path / "jobs.db"))
    second = start(url=str(tmp_path / "jobs.db"))
    assert not first_key.path_of(second.settings).exists()
    assert [k["prefix"] for k in Web(first.url, first.token).get("/v1/keys").json["keys"]] == [first.token[:18]]
    assert Web(second.url, first.token).get("/v1/me").status == 200


@pytest.mark.parametrize("until_there", ["the key", "the mark"])
def test_two_first_starts_at_once_that_share_the_key_file_have_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_there: str
) -> None:
    url, path = str(tmp_path / "jobs.db"), tmp_path / "admin.key"
    settings = ServerSettings(url=url, key_file=str(path))
    with tampu.open(url, maintenance=False) as store, tampu.open(url, maintenance=False) as beside:
        submit = access.core(store).coalescer.submit

        def overtaken(step: Any) -> Any:
            """The other start goes all the way just before this step of ours."""
            change: Any = step.calls[0] if isinstance(step, Together) else step
            kind = change.kind
            if kind == ("key" if until_there == "the key" else "secret"):
                monkeypatch.setattr(access.core(store).coalescer, "submit", submit)
                assert first_key.ensure(access.core(beside), settings) is not None
            return submit(step)

        monkeypatch.setattr(access.core(store).coalescer, "submit", overtaken)
        id = first_key.ensure(access.core(store), settings)
        assert id is not None
        assert path.read_text().startswith(f"tampu_{id}_")
        assert [d.name for d in access.engine(store).documents(keys.KIND, keys.TENANT)] == [id]


def test_the_secret_is_stored_nowhere(stall: Stall, web: Web) -> None:
    token = web.key("view")
    secret = token.rpartition("_")[2] if "_" not in token[19:] else token[19:]
    documents = stall.core.engine.documents(keys.KIND, keys.TENANT)
    assert documents
    assert all(secret.encode() not in d.value for d in documents)
    assert secret not in web.get("/v1/keys").raw.decode()


def test_a_list_tells_prefix_name_grants_expiry_and_last_use(web: Web) -> None:
    token = web.key("publish:orders.*", name="shop", expires_in=3600)
    web.as_key(token).get("/v1/me")
    admin, listed = web.get("/v1/keys").json["keys"]
    assert (admin["name"], admin["tenant"]) == ("admin", "*")
    assert token.startswith(listed["prefix"])
    grant = {"permissions": ["publish"], "queues": ["orders.*"], "roles": []}
    assert (listed["name"], listed["grants"]) == ("shop", [grant])
    assert listed["expires_at"] > listed["created_at"]
    until(lambda: "last_used_at" in web.get("/v1/keys").json["keys"][1])


def test_a_rotated_key_has_two_secrets_until_the_overlap_is_over(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    web = Web(node.url, node.token)
    old = web.key("view")
    id = old.split("_")[1]
    new = web.post(f"/v1/keys/{id}/rotate", {"overlap": 60}).json["token"]
    assert new != old
    assert web.as_key(old).get("/v1/queues").status == web.as_key(new).get("/v1/queues").status == 200
    newest = web.post(f"/v1/keys/{id}/rotate", {"overlap": 0}).json["token"]
    until(lambda: web.as_key(new).get("/v1/queues").status == 401)
    assert web.as_key(old).get("/v1/queues").status == 401
    assert web.as_key(newest).get("/v1/queues").status == 200


def test_keys_of_all_tenants_are_listed_rotated_and_revoked_by_their_like_alone(web: Web) -> None:
    token = web.key("view", all_tenants=True)
    id = token.split("_")[1]
    ours = web.as_key(web.key("admin"))
    assert id not in [k["id"] for k in ours.get("/v1/keys").json["keys"]]
    assert ours.post(f"/v1/keys/{id}/rotate", {}).status == ours.request("DELETE", f"/v1/keys/{id}").status == 404
    other = web.as_key(web.headers["authorization"][7:], **{"tampu-tenant": "other"})
    for admin in (web, other):
        assert id in [k["id"] for k in admin.get("/v1/keys").json["keys"]]
    assert [k["tenant"] for k in other.get("/v1/keys").json["keys"]] == ["*", "*"]
    new = web.post(f"/v1/keys/{id}/rotate", {"overlap": 0}).json["token"]
    until(lambda: web.as_key(token).get("/v1/me").status == 401)
    assert web.as_key(new).get("/v1/me").status == 200
    assert other.request("DELETE", f"/v1/keys/{id}").status == 200
    until(lambda: web.as_key(new).get("/v1/me").status == 401)


def test_numbers_that_mean_nothing_are_refused(web: Web) -> None:
    grants = [{"permissions": ["view"]}]
    for field in ("rate", "expires_in"):
        for number in (float("nan"), float("inf"), -1.0, 1.7e308):
            body = msgspec.msgpack.encode({"name": "n", "grants": grants, field: number})
            assert web.post("/v1/keys", body, content_type="application/msgpack").code == "invalid_message"


def test_a_key_ends_with_its_time(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    web = Web(node.url, node.token)
    token = web.key("view", expires_in=60)
    clock.advance(59)
    assert web.as_key(token).get("/v1/queues").status == 200
    clock.advance(1)
    web.key("view")  # a change of documents, which nodes look at
    until(lambda: web.as_key(token).get("/v1/queues").status == 401)


def test_a_revoked_key_is_refused_on_every_node_within_a_second(start: Start, tmp_path: Path) -> None:
    nodes = [start(url=str(tmp_path / "jobs.db")) for _ in range(2)]
    web = Web(nodes[0].url, nodes[0].token)
    token = web.key("consume,view")
    here, there = Web(nodes[0].url, token), Web(nodes[1].url, token)
    assert here.get("/v1/queues").status == there.get("/v1/queues").status == 200
    with ThreadPoolExecutor(2) as pool:
        polls = [pool.submit(w.post, "/v1/claim", {"queues": "jobs", "wait": 30}) for w in (here, there)]
        until(lambda: all(len(node.state.polls) == 1 for node in nodes))
        web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
        assert [poll.result(60).code for poll in polls] == ["unauthorized"] * 2
        until(lambda: here.get("/v1/queues").status == there.get("/v1/queues").status == 401)


def test_a_long_poll_for_a_result_ends_with_its_key_too(web: Web, stall: Stall) -> None:
    id = web.post("/v1/queues/jobs/messages", {"n": 1}).json["id"]
    token = web.key("view")
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(web.as_key(token).get, f"/v1/messages/{id}/result?wait=30")
        until(lambda: len(stall.state.polls) == 1)
        web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
        assert poll.result(60).code == "unauthorized"


def test_a_long_poll_ends_with_a_key_that_expires(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    token = Web(node.url, node.token).key("consume", expires_in=60)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(Web(node.url, token).post, "/v1/claim", {"queues": "jobs", "wait": 50})
        until(lambda: len(node.state.polls) == 1)
        clock.advance(60)
        assert poll.result(60).code == "unauthorized"


def test_bad_keys_are_refused_alike_and_soon_have_to_wait(start: Start) -> None:
    node = start(login_attempts=3)
    web = Web(node.url, node.token)
    good = web.key("view")
    bad = [good[:-1] + ("A" if good[-1] != "A" else "B"), "tampu_" + "a" * 12 + "_" + "b" * 43, "nonsense", ""]
    answers = [web.as_key(token).get("/v1/queues") for token in bad]
    assert [answer.status for answer in answers] == [401, 401, 401, 429]
    assert int(answers[3].headers["retry-after"]) > 0
    assert answers[0].json["detail"] == answers[1].json["detail"]
    assert web.as_key(None).post("/v1/session", {"key": bad[0]}).code == "rate_limited"
    assert web.as_key(None).get("/signin?token=x").code == "rate_limited"


def test_somebody_s_bad_keys_hold_up_no_good_one_of_the_same_address(start: Start) -> None:
    node = start(login_attempts=1)
    web, nobody = Web(node.url, node.token), Web(node.url)
    session = nobody.post("/v1/session", {"key": web.key("view")}).headers["set-cookie"].split(";")[0]
    new, typed = web.key("view"), web.key("view")
    assert [nobody.get("/v1/me", authorization="Bearer nonsense").status for _ in range(3)] == [401, 429, 429]
    assert web.get("/v1/queues").status == 200
    assert web.as_key(new).get("/v1/queues").status == 200, "the first time it is seen here"
    assert nobody.get("/v1/me", cookie=session).status == 200
    assert nobody.get("/", cookie=session).status == 200
    assert nobody.post("/v1/session", {"key": typed}).status == 200
    assert nobody.get("/v1/me").status == 401, "no key is no bad key"


def test_no_secret_is_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = start(access_log=True)
    web = Web(node.url, node.token)
    token = web.key("view")
    web.as_key(token).get("/v1/queues")
    web.as_key(token[:-2]).get("/v1/queues")
    link = sessions.make_link(node.core, "x")
    web.get(f"/signin?token={link}")
    until(lambda: "/signin" in caplog.text)  # logged when the answer is under way already
    assert caplog.text.count('"event": "request"') == 4
    for secret in (token[19:], node.token[19:], link):
        assert secret not in caplog.text


def test_the_link_signs_in_once(stall: Stall, web: Web) -> None:
    key_id = stall.token.split("_")[1]
    token = sessions.make_link(stall.core, key_id)
    nobody = web.as_key(None)
    first = nobody.get(f"/signin?token={token}")
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    session = cookie.split(";")[0]
    assert nobody.get("/v1/me", cookie=session).json["name"] == "admin"
    assert nobody.get(f"/signin?token={token}").status == 401


def test_a_session_is_not_for_other_sites_and_ends_with_its_key(web: Web) -> None:
    token = web.key("operate,view")
    answer = web.as_key(None).post("/v1/session", {"key": token})
    session = answer.headers["set-cookie"].split(";")[0]
    nobody = web.as_key(None)
    publish = "/v1/queues/jobs/config"
    assert nobody.request("PATCH", publish, {"lease": 5}, cookie=session).status == 200
    assert (
        nobody.request("PATCH", publish, {"lease": 5}, cookie=session, sec_fetch_site="cross-site").code == "forbidden"
    )
    web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
    until(lambda: nobody.get("/v1/me", cookie=session).status == 401)


FOREIGN = (
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    {"origin": "https://elsewhere.example"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "null"},
)


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
def test_pages_of_other_sites_can_neither_use_a_session_nor_begin_one(
    stall: Stall, web: Web, foreign: dict[str, str]
) -> None:
    nobody, publish = web.as_key(None), ("/v1/queues/jobs/messages", {"n": 1})
    session = nobody.post("/v1/session", {"key": stall.token}).headers["set-cookie"].split(";")[0]
    assert nobody.post(*publish, cookie=session, **foreign).code == "forbidden"
    assert nobody.post("/v1/session", {"key": stall.token}, **foreign).code == "forbidden"
    assert web.post(*publish, **foreign).status == 201, "with a key in a header it is somebody's own page"
    own = {"origin": f"http://{urlsplit(stall.url).netloc}", "sec_fetch_site": "same-origin"}
    assert nobody.post(*publish, cookie=session, **own).status == 201
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        asyncio.run(_handshake(stall, cookie=session, **foreign))
    asyncio.run(_handshake(stall, cookie=session, **own))


async def _handshake(stall: Stall, **headers: str) -> None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.ws_connect(stall.url + "/v1/stream", headers=given):
        pass


def test_without_auth_pages_of_other_sites_can_do_nothing(start: Start) -> None:
    node = start(auth=False)
    web = Web(node.url)
    web.post("/v1/queues/jobs/messages", b"1")
    for foreign in FOREIGN:
        assert web.post("/v1/queues/jobs/purge", {"states": ["ready"]}, **foreign).code == "forbidden"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            asyncio.run(_handshake(node, **foreign))
    assert web.get("/", sec_fetch_site="cross-site").status == 200, "a link may lead here"
    assert web.get("/v1/queues/jobs/stats").json["counts"]["ready"] == 1


def test_without_auth_the_server_has_only_the_names_of_this_machine(start: Start) -> None:
    """A site can give a name of its own the address of loopback, and would be the same origin then."""
    web = Web(start(auth=False).url)
    for name in ("elsewhere.example", "elsewhere.example:8400", "127.0.0.1.elsewhere.example", "10.0.0.1", "[", ""):
        assert web.get("/v1/queues", host=name).code == "forbidden", name
        assert web.get("/", host=name).status == 403
        assert web.post("/v1/queues/jobs/messages", b"1", host=name, origin=f"http://{name}").code == "forbidden"
    for name in ("localhost", "LOCALHOST:8400", "127.0.0.1:8400", "127.1.2.3", "[::1]:8400"):
        assert web.get("/v1/queues", host=name).status == 200, name


@pytest.mark.parametrize("says", [{}, {"x_forwarded_proto": "https"}, {"origin": "https://queues.example"}], ids=str)
def test_behind_a_proxy_that_speaks_https_cookies_are_only_sent_encrypted(
    stall: Stall, web: Web, says: dict[str, str]
) -> None:
    given = {"host": "queues.example", **says}
    nobody, form = web.as_key(None), {"content_type": "application/x-www-form-urlencoded"}
    answers = [
        nobody.post("/v1/session", {"key": stall.token}, **given),
        nobody.post("/signin", f"key={stall.token}".encode(), **form, **given),
        nobody.post("/tenant", b"tenant=other", **form, **given),
    ]
    assert ["Secure" in answer.headers["set-cookie"] for answer in answers] == [bool(says)] * 3


def test_a_session_of_the_older_secret_ends_with_it(start: Start) -> None:
    clock = FakeClock()
    node = start(clock=clock)
    web, nobody = Web(node.url, node.token), Web(node.url)
    old = web.key("view")
    new = web.post(f"/v1/keys/{old.split('_')[1]}/rotate", {"overlap": 60}).json["token"]
    before, after = (
        nobody.post("/v1/session", {"key": token}).headers["set-cookie"].split(";")[0] for token in (old, new)
    )
    assert nobody.get("/v1/me", cookie=before).status == nobody.get("/v1/me", cookie=after).status == 200
    clock.advance(61)
    web.key("view")  # a change of documents, which nodes look at
    until(lambda: nobody.get("/v1/me", cookie=before).status == 401)
    assert nobody.get("/v1/me", cookie=after).status == 200


def test_a_session_opens_no_way_for_those_who_have_none(web: Web) -> None:
    answer = web.as_key(None).post("/v1/session", {"key": web.key("publish:jobs")})
    session = answer.headers["set-cookie"].split(";")[0]
    nobody = web.as_key(None)
    for _ in range(3):
        assert nobody.post("/v1/queues/jobs/messages", {"n": 1}, cookie=session).status == 201
        assert nobody.post("/v1/queues/jobs/messages", {"n": 1}).status == 401
        assert web.as_key(web.key("view")).post("/v1/queues/jobs/messages", {"n": 1}).status == 403


def test_a_key_that_publishes_all_the_time_is_refused_when_it_is_revoked(web: Web) -> None:
    token = web.key("publish:jobs")
    shop = web.as_key(token)
    for _ in range(5):
        assert shop.post("/v1/queues/jobs/messages", {"n": 1}).status == 201
    assert shop.post("/v1/queues/other/messages", {"n": 1}).status == 403
    web.request("DELETE", f"/v1/keys/{token.split('_')[1]}")
    until(lambda: shop.post("/v1/queues/jobs/messages", {"n": 1}).status == 401)


def test_without_auth_everybody_on_this_machine_is_admin(start: Start) -> None:
    node = start(auth=False)
    web = Web(node.url)
    assert web.post("/v1/queues/jobs/messages", {"n": 1}).status == 201
    assert web.get("/v1/queues", tampu_tenant="other").json["queues"] == []


def test_many_first_uses_at_once_all_get_in(web: Web) -> None:
    token = web.key("view")
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(web.as_key(token).get("/v1/queues").status)) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses == [200] * 10


def test_keys_are_read_again_only_when_one_has_changed(stall: Stall, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of keys, every change of a rate limit or a setting read them all."""
    monkeypatch.setattr(key_cache, "_REFRESH_SECONDS", 3600.0)
    tokens = [web.key("view") for _ in range(5)]
    assert [web.as_key(token).get("/v1/me").status for token in tokens] == [200] * 5
    cache = stall.state.authenticator.key_cache
    cache.refresh()
    reads: list[str] = []
    document = stall.core.engine.document

    def noting(kind: str, tenant: str, name: str) -> Any:
        reads.append(kind)
        return document(kind, tenant, name)

    monkeypatch.setattr(stall.core.engine, "document", noting)
    stall.core.coalescer.submit(PutDocument("other", "*", "x", b"{}"))
    assert cache.refresh() == []
    assert keys.KIND not in reads
    web.request("DELETE", f"/v1/keys/{tokens[0].split('_')[1]}")
    until(lambda: web.as_key(tokens[0]).get("/v1/me").status == 401)
    assert [web.as_key(token).get("/v1/me").status for token in tokens[1:]] == [200] * 4


@pytest.mark.parametrize("name", ["a" * 16 + "\n", "a" * 15, "a" * 16 + "\n\n"], ids=repr)
def test_a_name_ends_where_its_text_does(web: Web, name: str) -> None:
    assert web.post("/v1/queues/jobs/publish", {"messages": [{"payload": 1}], "once": name}).code == "invalid_message"
    grants = [{"permissions": ["view"], "queues": ["jobs\n"]}]
    assert web.post("/v1/keys", {"name": "x", "grants": grants}).code == "invalid_message"


@pytest.mark.parametrize("path", ["/v1/queues/", "/queues/jobs/", "/health/"])
def test_no_redirect_trusts_host(web: Web, path: str) -> None:
    answer = web.get(path, host="evil.example", x_forwarded_proto="https")
    assert answer.status == 404
    assert "location" not in answer.headers


def test_a_tenant_sees_its_queues_and_not_the_store(stall: Stall, web: Web) -> None:
    web.post("/v1/queues/jobs/messages", {"n": 1})
    web.post("/v1/queues/jobs/pause")
    of_store = {check["what"] for check in web.get("/v1/check").json["checks"]}
    key = web.as_key(web.key("operate"))
    found = key.get("/v1/check").json["checks"]
    assert [check["what"] for check in found] == ["queues"]
    assert {"schema", "durability"} <= of_store
