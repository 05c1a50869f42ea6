"""The console without a browser: sign-in, what it refuses, and what it tells browsers to refuse."""

from __future__ import annotations

import http.client
import urllib.parse
from typing import Any

import pytest

import tampu
from tampu.server.console import render
from tests.server.web import Web
from tests.servers.http import Stall


def request(stall: Stall, method: str, path: str, body: str | None = None, **headers: str) -> Any:
    parts = urllib.parse.urlsplit(stall.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, parts.path + path, body, sent)
    answer = connection.getresponse()
    answer.text = answer.read().decode()  # type: ignore[attr-defined]  # kept for the test
    connection.close()
    return answer


def form(key: str) -> str:
    return urllib.parse.urlencode({"key": key})


def test_the_page_forbids_scripts_that_are_not_its_own(stall: Stall) -> None:
    answer = request(stall, "GET", "/")
    policy = answer.getheader("content-security-policy")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.getheader("x-content-type-options") == "nosniff"
    assert answer.getheader("cache-control") == "no-store"


def test_a_form_of_another_site_does_not_sign_in(stall: Stall) -> None:
    for headers in ({"sec_fetch_site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "null"}):
        answer = request(stall, "POST", "/signin", form(stall.token), **headers)
        assert (answer.status, answer.getheader("set-cookie")) == (403, None)
    answer = request(stall, "POST", "/signin", form(stall.token), sec_fetch_site="same-origin")
    assert answer.status == 303
    assert "HttpOnly" in answer.getheader("set-cookie")


def test_bad_keys_are_counted_and_soon_have_to_wait(stall: Stall) -> None:
    statuses = [request(stall, "POST", "/signin", form("tampu_wrong")).status for _ in range(22)]
    assert (statuses[0], statuses[-1]) == (401, 429)


@pytest.mark.parametrize("body", ["", "key=%ff%fe", "key=" + "x" * 5000, "\xff", "&".join(["a=b"] * 50)])
def test_bad_forms_are_answered_with_the_form(stall: Stall, body: str) -> None:
    answer = request(stall, "POST", "/signin", body)
    assert answer.status in (400, 401, 413)
    assert "<h1>Sign in</h1>" in answer.text


@pytest.mark.parametrize("path", ["/static/nothing.js", "/static/..%2f..%2frendering.py", "/static/%00"])
def test_only_files_of_the_page_are_served(stall: Stall, path: str) -> None:
    assert request(stall, "GET", path).status == 404


@pytest.mark.parametrize("path", ["/queues/none", "/queues/bad%20name", "/messages/none", "/messages/<script>"])
def test_what_does_not_exist_is_answered_with_a_page(stall: Stall, path: str) -> None:
    answer = request(stall, "GET", urllib.parse.quote(path, safe="/%"), authorization=f"Bearer {stall.token}")
    assert answer.status in (400, 403, 404)
    assert "<script>" not in answer.text
    assert "To the overview" in answer.text


def _signed_in(stall: Stall, key: str) -> str:
    answer = request(stall, "POST", "/signin", form(key))
    assert answer.status == 303
    return str(answer.getheader("set-cookie")).partition(";")[0]


def test_who_may_see_any_tenant_chooses_one(stall: Stall) -> None:
    web = Web(stall.url, stall.token)
    web.post("/v1/queues/ours/messages", {"n": 1})
    web.post("/v1/queues/theirs/messages", {"n": 1}, tampu_tenant="acme")
    session = _signed_in(stall, stall.token)
    first = request(stall, "GET", "/", cookie=session).text
    assert "queues/ours" in first
    assert "queues/theirs" not in first
    assert "<option>acme</option>" in first
    chosen = request(stall, "POST", "/tenant", "tenant=acme", cookie=session, sec_fetch_site="same-origin")
    assert (chosen.status, chosen.getheader("location")) == (303, "./")
    cookie = str(chosen.getheader("set-cookie"))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    both = f"{session}; {cookie.partition(';')[0]}"
    second = request(stall, "GET", "/", cookie=both).text
    assert "queues/theirs" in second
    assert "queues/ours" not in second
    assert "queues/ours" in request(stall, "GET", "/", cookie=f"{session}; tampu_tenant=%2F..").text
    answer = Web(stall.url, stall.token, cookie=both).get("/v1/queues").json
    assert answer == {"queues": ["ours"]}, "a key in the header is not led by a cookie"


def test_a_key_of_one_tenant_has_no_choice(stall: Stall) -> None:
    web = Web(stall.url, stall.token)
    web.post("/v1/queues/ours/messages", {"n": 1})
    web.post("/v1/queues/theirs/messages", {"n": 1}, tampu_tenant="acme")
    session = _signed_in(stall, web.key("view"))
    page = request(stall, "GET", "/", cookie=f"{session}; tampu_tenant=acme").text
    assert "queues/ours" in page
    assert "acme" not in page


def test_a_choice_of_another_site_or_of_nonsense_is_refused(stall: Stall) -> None:
    assert request(stall, "POST", "/tenant", "tenant=acme", sec_fetch_site="cross-site").status == 403
    assert request(stall, "POST", "/tenant", "tenant=%2F").status == 400


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"b": b"abc", 7: [1]}, '{\n  "b": "YWJj",\n  "7": [\n    1\n  ]\n}'), ({None: 1}, '"{None: 1}"')],
    ids=repr,
)
def test_a_payload_of_messagepack_is_shown_as_its_value(value: Any, shown: str) -> None:
    with tampu.open("memory://") as store:
        message = store.publish("jobs", value)
    assert render.payload(message) == shown


def test_browsers_get_errors_as_pages_and_programs_as_problems(stall: Stall) -> None:
    bearer = f"Bearer {stall.token}"
    for path, status in (("/nowhere/at/all", 404), ("/v1/queues/none/stats", 404), ("/v1/messages/x", 400)):
        page = request(stall, "GET", path, authorization=bearer, accept="text/html,*/*;q=0.8")
        assert (page.status, page.getheader("content-type")) == (status, "text/html; charset=utf-8")
        assert "To the overview" in page.text
        assert f'href="{"../" * (path.count("/") - 1)}' in page.text
        problem = request(stall, "GET", path, authorization=bearer, accept="*/*")
        assert (problem.status, problem.getheader("content-type")) == (status, "application/problem+json")
    page = request(stall, "GET", "/v1/queues", accept="text/html")
    assert (page.status, page.getheader("www-authenticate")) == (401, "Bearer")


def test_a_form_is_not_published_as_a_payload(stall: Stall) -> None:
    kind = "application/x-www-form-urlencoded"
    for _ in range(2):
        answer = request(
            stall, "POST", "/v1/queues/jobs/messages", "a=1", authorization=f"Bearer {stall.token}", content_type=kind
        )
        assert answer.status == 415
        assert "application/json" in answer.text
