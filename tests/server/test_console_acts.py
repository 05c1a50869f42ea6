"""Acts of the console without a browser: every one needs its permission, and a form of our own site."""

from __future__ import annotations

import html
import http.client
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tampu.model.grants import Grant
from tampu.model.journal import Position, Transition
from tampu.server.auth.grants import Caller
from tampu.server.console import journal_pages
from tampu.server.console.page import NOTICE
from tampu.server.console.pages import PAGES, messages
from tests.server.web import Web
from tests.servers.http import Stall

HOSTILE = "</pre><script>window.pwned=1</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}"


def _ask(stall: Stall, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str, Any]:
    parts = urllib.parse.urlsplit(stall.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"{parts.path}/{path.removeprefix('/')}", body, sent)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def _session(stall: Stall, key: str) -> str:
    status, _, headers = _ask(stall, "POST", "signin", urllib.parse.urlencode({"key": key}))
    assert status == 303
    return str(headers["set-cookie"]).partition(";")[0]


@pytest.fixture
def shop(stall: Stall) -> Iterator[tampu.Store]:
    """A store with one of each thing that an act is about."""
    with tampu.open(stall.url, token=stall.token) as store:
        store.queues.put("emails", max_attempts=1)
        store.schedules.put("s", queue="emails", every=3600, payload=1)
        store.rules.put("r", queues=["emails"], actions=[{"archive": True}], paused=True)
        store.schemas.put("s", {}, queues=["nothing"])
        store.alerts.put("a", measure="oldest", above=10, queues=["emails"])
        yield store


def _acts() -> list[str]:
    """The paths of all acts of all pages."""
    return sorted({route.path for page in PAGES for route in page.router.routes if "POST" in route.methods})  # type: ignore[attr-defined]  # they are routes of the framework


def _filled(path: str, store: tampu.Store) -> str:
    names = {"queue": "emails", "verb": "pause", "option": "approve", "name": "s"}
    if path.startswith("/rules"):
        names["name"] = "r"
    if path.startswith("/alerts"):
        names["name"] = "a"
    if path.startswith("/agents"):
        names |= {"name": "retention"}
    if path.startswith("/keys"):
        names["id"] = "nokey"
    elif path.startswith("/dead"):
        names["id"] = "noreplay"
    else:
        names["id"] = store.publish("emails", 1, hold="review").id
    return path.format(**names) + ("?queue=*" if path in ("/dead/replay", "/dead/purge") else "")


def test_there_is_an_act_for_everything() -> None:
    assert len(_acts()) >= 34


def test_nobody_acts_without_the_permission(stall: Stall, web: Web, shop: tampu.Store) -> None:
    viewer = _session(stall, web.key("view"))
    before = shop.queues.get("emails")
    for path in _acts():
        filled = _filled(path, shop)
        for method in ("GET", "POST"):
            body = "name=x&sure=yes" if method == "POST" else None
            status, text, _ = _ask(stall, method, filled, body, cookie=viewer, sec_fetch_site="same-origin")
            assert status in (403, 404), (method, filled, status, text[-500:])
    assert shop.queues.get("emails") == before
    assert [one.action for one in shop.audit(limit=1000) if one.actor == "test"] == []


def test_nobody_acts_signed_out_or_from_another_site(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    for path in _acts():
        filled = _filled(path, shop)
        assert _ask(stall, "POST", filled, "name=x")[0] == 401, filled
        for headers in (
            {"sec_fetch_site": "cross-site"},
            {"origin": "https://evil.example"},
            {"sec_fetch_site": "same-site"},
        ):
            status, _, _ = _ask(stall, "POST", filled, "name=x&sure=yes", cookie=admin, **headers)
            assert status == 403, (filled, headers)
    assert shop.queues.get("emails").status == "open"


def test_a_get_changes_nothing(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    paths = [_filled(path, shop) for path in _acts()]
    before = (len(list(shop.audit(limit=1000))), shop.stats("emails").counts)
    for path in paths:
        _ask(stall, "GET", path, cookie=admin)
    assert (len(list(shop.audit(limit=1000))), shop.stats("emails").counts) == before


def test_a_viewer_sees_pages_without_acts(stall: Stall, web: Web, shop: tampu.Store) -> None:
    id = shop.publish("emails", 1).id
    viewer = _session(stall, web.key("view"))
    for page in PAGES:
        if not page.listed:
            continue
        status, text, _ = _ask(stall, "GET", page.path, cookie=viewer)
        if page.name in ("keys", "audit"):
            assert status == 403
        else:
            assert (status, "data-ask" in text) == (200, False), page.path
            assert '"../keys"' not in text
            assert 'href="keys"' not in text
    for path in ("queues/emails", f"messages/{id}", "rules/r", "schemas/s"):
        status, text, _ = _ask(stall, "GET", path, cookie=viewer)
        assert (status, "data-ask" in text) == (200, False), path
    _, text, _ = _ask(stall, "GET", "queues/emails", cookie=_session(stall, stall.token))
    assert text.count("data-ask") >= 6


def test_a_key_of_some_queues_sees_nothing_of_others(stall: Stall, web: Web, shop: tampu.Store) -> None:
    shop.publish("secret", {"hush": 1}, type="hidden", labels={"who": "hush"}, correlation_id="story")
    shop.publish("open", 1, correlation_id="story")
    (lease,) = shop.claim("secret", worker="hidden-worker")
    shop.reject(lease, "hush", error="hush-error")
    some = _session(stall, web.key("view,operate,publish:open"))
    paths = ["", "queues", "messages", "messages?correlation=story", "dead", "workers", "schedules", "rules", "schemas"]
    for path in paths:
        status, text, _ = _ask(stall, "GET", path, cookie=some)
        assert status == 200, path
        assert "secret" not in text, path
        assert "hush" not in text, path
        assert "hidden" not in text.replace('type="hidden"', "").replace("aria-hidden", ""), path
    for path in ("queues/secret", "messages?queue=secret", "dead?queue=secret", "queues/secret/publish"):
        assert _ask(stall, "GET", path, cookie=some)[0] == 403, path


def test_the_overview_shows_agents_to_those_who_may_view_every_queue(stall: Stall, web: Web, shop: tampu.Store) -> None:
    shop.agents.pause("retention")
    for grant, shown in (("view", True), ("view:emails", False)):
        _, text, _ = _ask(stall, "GET", "", cookie=_session(stall, web.key(grant, all_tenants=True)))
        assert ("Agent retention is paused" in text) == shown, grant


def test_who_may_only_review_comes_to_the_reviews_and_can_sign_out(stall: Stall, web: Web, shop: tampu.Store) -> None:
    id = shop.publish("emails", 1, review={"context": ["A loan"]}).id
    reviewer = _session(stall, web.key("review:emails"))
    status, _, headers = _ask(stall, "GET", "", cookie=reviewer)
    assert (status, headers["location"]) == (303, "reviews")
    for path in ("reviews", f"reviews/{id}"):
        status, text, _ = _ask(stall, "GET", path, cookie=reviewer)
        assert (status, "data-live" in text, "signout" in text) == (200, False, True), path
        assert "data-live" in _ask(stall, "GET", path, cookie=_session(stall, stall.token))[1]
    status, text, _ = _ask(stall, "GET", "find?id=emails", cookie=reviewer)
    assert (status, 'action="signout"' in text) == (403, True)


def test_hostile_texts_are_only_text_on_every_page(stall: Stall, shop: tampu.Store) -> None:
    shop.queues.put("hostile", max_attempts=1)
    message = shop.publish(
        "hostile", {"text": HOSTILE}, labels={"l": HOSTILE}, headers={"h": HOSTILE}, correlation_id=HOSTILE[:100],
        group=HOSTILE[:60], source=HOSTILE[:60],
    )  # fmt: skip
    shop.publish("hostile", 1, hold=HOSTILE[:90], correlation_id=HOSTILE[:100])
    (lease,) = shop.claim("hostile", worker=HOSTILE[:90])
    shop.nack(lease, HOSTILE, traceback=HOSTILE)
    shop.schedules.put("h", queue="hostile", every=60, payload=HOSTILE)
    shop.rules.put("h", queues=["hostile"], when=f"message.type == {HOSTILE!r}", actions=[{"archive": True}])
    shop.schemas.put("h", {"description": HOSTILE}, queues=["hostile"])
    admin = _session(stall, stall.token)
    query = urllib.parse.urlencode(dict.fromkeys(("error", "worker", "key", "type", "correlation", "actor"), HOSTILE))
    paths = [page.path for page in PAGES if page.listed] + [
        "queues/hostile", f"messages/{message.id}", "rules/h", "schemas/h", f"messages?{query}", f"dead?error={query}",
        f"audit?{query}", "queues/hostile/settings", f"messages/{message.id}/edit",
        f"find?id={urllib.parse.quote(HOSTILE)}",
    ]  # fmt: skip
    for path in paths:
        _, text, headers = _ask(stall, "GET", path, cookie=f"{admin}; {NOTICE}={urllib.parse.quote(HOSTILE)}")
        assert "<script>window" not in text, path
        assert "<img src=x" not in text, path
        assert "'unsafe" not in headers["content-security-policy"] if "content-security-policy" in headers else True
    _, text, _ = _ask(stall, "GET", f"messages/{message.id}", cookie=admin)
    assert "&lt;script&gt;window.pwned" in text
    assert "{{ 7*7 }}" in text


def test_what_was_done_is_said_once(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    status, _, headers = _ask(
        stall, "POST", "queues/emails/status/pause", "", cookie=admin, sec_fetch_site="same-origin"
    )
    assert (status, headers["location"]) == (303, "../../../queues/emails")
    notice = re.search(rf"{NOTICE}=([^;]*); HttpOnly", headers["set-cookie"])
    assert notice is not None
    _, text, headers = _ask(stall, "GET", "queues/emails", cookie=f"{admin}; {NOTICE}={notice[1]}")
    assert "emails is paused." in text
    assert f'{NOTICE}=""' in headers["set-cookie"]
    (record,) = [
        one for one in shop.audit(action="queue.config", target="emails") if one.before and one.actor == "admin"
    ]
    assert record.request_id is not None


def test_a_form_that_is_wrong_comes_back_with_what_was_typed(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    for path, fields, why in (
        ("queues/emails/publish", {"payload": "{", "type": "mine"}, "payload is not JSON"),
        ("queues/emails/publish", {"payload": "[" * 20_000 + "]" * 20_000}, "nested too deeply"),
        ("queues/emails/publish", {"payload": "1", "priority": "much"}, "priority must be a number"),
        ("queues/emails/publish", {"payload": "1", "labels": "no equals"}, "is not a label"),
        ("queues/emails/publish", {"payload": "!", "content": "base64"}, "not Base64"),
        ("queues/emails/settings", {"lease": "soon"}, "is not a duration"),
        ("queues/emails/settings", {"max_attempts": "many"}, "must be a number"),
        ("put/rules", {"name": "x", "definition": "[1]"}, "is a JSON object"),
        ("put/schemas", {"name": "bad name", "definition": "{}"}, "name"),
        ("keys/make", {"name": "k", "grants": "fly"}, "is not a grant"),
        ("keys/make", {"name": "k", "grants": "view", "expires": "soon"}, "is not a duration"),
        ("keys/make", {"name": "k", "grants": "view\n" * 51}, "at most 50 grants"),
        ("dead/purge?queue=*", {"a": "b"}, "tick the box"),
    ):
        body = urllib.parse.urlencode(fields)
        status, text, _ = _ask(stall, "POST", path, body, cookie=admin, sec_fetch_site="same-origin")
        assert status == 400, (path, fields, status)
        assert 'role="alert"' in text
        assert why in text, (path, fields)
        for name, value in fields.items():
            if name not in ("definition", "grants", "payload", "a", "content"):
                assert f'value="{value}"' in text, (path, name)
    assert shop.stats("emails").ready == 0


def test_a_scope_is_not_a_queue(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    shop.publish("shop.orders", 1)
    for scope in ("*", "shop.*"):
        for path in ("", "/settings", "/status/pause", "/publish", "/purge", "/remove"):
            for method in ("GET", "POST")[: 2 if path else 1]:
                status, text, _ = _ask(
                    stall, method, f"queues/{scope}{path}", cookie=admin, sec_fetch_site="same-origin"
                )
                assert status == 400, (method, scope, path)
                assert "is not a queue name" in text


def test_an_agent_has_no_act_that_is_not_offered(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    for method in ("GET", "POST"):
        status, text, _ = _ask(stall, method, "agents/retention/fly", cookie=admin, sec_fetch_site="same-origin")
        assert (status, "is not an act of an agent" in text) == (409, True)


def test_settings_take_what_the_command_takes(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    own = {"max_attempts": "1", "lease": "2m", "rate": "100/s", "group_order": "true", "backoff": "[1, 5, 30]",
           "retention": "1h30m", "dead_retention": "7d", "dead_letter_to": "broken"}  # fmt: skip
    body = urllib.parse.urlencode(own)
    status, text, _ = _ask(stall, "POST", "queues/emails/settings", body, cookie=admin, sec_fetch_site="same-origin")
    assert status == 303, text
    config = shop.queues.get("emails", inherited=False)
    assert (config.lease, config.rate, config.group_order, config.retention) == (120.0, 100.0, True, 5400.0)
    assert (config.dead_retention, config.dead_letter_to) == (7 * 86_400.0, "broken")
    assert config.backoff is not None
    assert config.backoff.delays == (1.0, 5.0, 30.0)
    _, text, _ = _ask(stall, "GET", "queues/emails/settings", cookie=admin)
    shown = {name: html.unescape(value) for name, value in re.findall(r'name="(shown-\w+)" value="([^"]*)"', text)}
    assert shown["shown-lease"] == "=120"
    body = urllib.parse.urlencode({**shown, "max_attempts": "1"})
    assert _ask(stall, "POST", "queues/emails/settings", body, cookie=admin)[0] == 303
    assert shop.queues.get("emails", inherited=False) == tampu.QueueConfig(max_attempts=1)


def test_settings_that_were_changed_meanwhile_or_are_not_in_the_form_stay(stall: Stall, shop: tampu.Store) -> None:
    admin = _session(stall, stall.token)
    shop.queues.put("emails", max_attempts=7, lease="2m", ttl="1h")
    body = urllib.parse.urlencode(
        {"shown-max_attempts": "=1", "max_attempts": "1", "shown-lease": "=", "shown-retention": "=", "retention": "1h"}
    )
    assert _ask(stall, "POST", "queues/emails/settings", body, cookie=admin)[0] == 303
    config = shop.queues.get("emails", inherited=False)
    assert (config.max_attempts, config.lease, config.ttl, config.retention) == (7, 120.0, 3600.0, 3600.0)


def test_an_edit_sent_twice_makes_one_message(stall: Stall, shop: tampu.Store) -> None:
    id = shop.publish("emails", {"to": "nobody"}).id
    (lease,) = shop.claim("emails")
    shop.nack(lease, "no such user")
    admin = _session(stall, stall.token)
    body = urllib.parse.urlencode({"payload": '{"to": "ada"}'})
    first = _ask(stall, "POST", f"messages/{id}/edit", body, cookie=admin)
    second = _ask(stall, "POST", f"messages/{id}/edit", body, cookie=admin)
    assert (first[0], second[0]) == (303, 404)
    assert (shop.stats("emails").ready, shop.stats("emails").dead) == (1, 0)


def test_an_edit_says_that_a_legal_hold_keeps_the_dead_message(stall: Stall, shop: tampu.Store) -> None:
    id = shop.publish("emails", {"to": "nobody"}).id
    (lease,) = shop.claim("emails")
    shop.nack(lease, "no such user")
    shop.holds.put("case-7", reason="court", queues="emails")
    admin = _session(stall, stall.token)
    _, _, headers = _ask(stall, "POST", f"messages/{id}/edit", urllib.parse.urlencode({"payload": "1"}), cookie=admin)
    assert "legal hold" in urllib.parse.unquote(headers["set-cookie"])
    assert (shop.stats("emails").ready, shop.stats("emails").dead) == (1, 1)


def test_the_journal_finds_the_newest_messages_page_by_page(stall: Stall, shop: tampu.Store) -> None:
    ids = [message.id for message in shop.publish_many("news", range(120))]
    admin = _session(stall, stall.token)
    seen: list[str] = []
    path: str | None = "messages?queue=news"
    while path is not None:
        status, text, _ = _ask(stall, "GET", path, cookie=admin)
        assert status == 200
        seen += re.findall(r'<tr id="row-([^"]+)"', text)
        more = re.search(r'href="(messages\?[^"]*before=[^"]*)"', text)
        path = None if more is None else more[1].replace("&amp;", "&")
    assert seen == ids[::-1]


def test_a_page_of_messages_reads_a_bounded_part_however_often_messages_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tampu.open("memory://", maintenance=False) as store:
        store.publish("emails", 1)
        engine: Any = access.core(store).engine
        (again,) = engine.journal({}, 10, None).transitions
        calls: list[int] = []

        def backwards(*arguments: Any) -> tuple[list[Transition], Position]:
            calls.append(1)
            assert len(calls) < 50
            return [again] * arguments[-1], {"0": 1}

        monkeypatch.setattr(journal_pages, "backwards", backwards)
        caller = Caller("default", "test", (Grant(("view",), ("*",)),))
        found, rest = messages.newest(engine, caller, messages._wanted({"state": "ready"}), None)
    assert len(found) == 1
    assert rest == {"0": 1}


def test_filters_of_messages(stall: Stall, shop: tampu.Store) -> None:
    one = shop.publish("news", 1, type="a", key="k1", labels={"customer": "42"}, correlation_id="c-1")
    two = shop.publish("news", 2, type="b")
    dead = shop.publish("emails", 3, type="c")
    (lease,) = shop.claim("emails", worker="w-7")
    shop.reject(lease, "bad", error="ValueError: broken pipe")
    (held,) = shop.claim("news", worker="w-8")
    admin = _session(stall, stall.token)

    def found(**query: str) -> set[str]:
        status, text, _ = _ask(stall, "GET", f"messages?{urllib.parse.urlencode(query)}", cookie=admin)
        assert status == 200, query
        return set(re.findall(r'<tr id="row-([^"]+)"', text))

    assert found(queue="news") == {one.id, two.id}
    assert found(type="b") == {two.id}
    assert found(key="k1") == found(label="customer=42") == found(correlation="c-1") == {one.id}
    assert found(state="dead") == found(error="broken pipe") == found(worker="w-7") == {dead.id}
    assert found(state="leased", worker="w-8") == {held.id}
    assert found(since="2000-01-01") >= {one.id, two.id}
    assert found(until="2000-01-01") == set()
    assert found(state="ready", queue="news") == {two.id}
    for query in ("state=flying", "since=yesterday", "label=nothing", "before=nonsense!"):
        assert _ask(stall, "GET", f"messages?{query}", cookie=admin)[0] == 400, query
