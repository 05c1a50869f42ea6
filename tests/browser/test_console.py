"""The console in a real browser: sessions, what moves by itself, hostile texts, the keyboard."""

from __future__ import annotations

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

import tampu
from tampu.broker import access
from tampu.server.auth.grants import parse
from tampu.server.auth.key_admin import KeyAdmin
from tests.browser.conftest import live, sign_in
from tests.servers.http import Server

HOSTILE = "</pre><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>{{ 7*7 }}"


def cell(page: Page, queue: str, column: str) -> Locator:
    """A queue's cell, by the name of its column."""
    names = page.locator("#queues thead th").all_inner_texts()
    return page.locator("#queues tbody tr", has_text=queue).locator("th, td").nth(names.index(column))


def test_a_key_signs_in_and_the_session_is_out_of_reach_of_scripts(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_label("Key").fill("tampu_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not a key")
    sign_in(page, server)
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    assert page.context.cookies() == []


def test_the_link_of_the_start_signs_in_once(page: Page, server: Server) -> None:
    link = server.running.about(sign_in=True).sign_in
    assert link is not None
    page.goto(link)
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()
    assert "token" not in page.url
    page.goto("about:blank")  # a page without its cookie would load itself again, in the middle of what follows
    page.context.clear_cookies()
    page.goto(link)
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_have_count(0)


def test_counts_rates_and_failures_move_by_themselves(page: Page, server: Server, store: tampu.Store) -> None:
    store.publish("emails", 0)
    sign_in(page, server)
    live(page)
    store.publish_many("emails", range(4))
    expect(cell(page, "emails", "ready")).to_have_text("5")
    (lease,) = store.claim("emails", worker="w1")
    store.reject(lease, error="ValueError: no such <b>address</b>")
    expect(page.locator("#failures")).to_contain_text("no such <b>address</b>")
    expect(cell(page, "emails", "dead")).to_have_text("1")
    store.publish("reports", 1)
    expect(page.get_by_role("link", name="reports")).to_be_visible()


def test_a_message_tells_its_timeline_and_hostile_payloads_are_only_text(
    page: Page, server: Server, store: tampu.Store
) -> None:
    store.queues.put("emails", backoff=0)
    message = store.publish(
        "emails", {"text": HOSTILE}, type="email.send", labels={"x": HOSTILE}, headers={"h": HOSTILE}
    )
    (lease,) = store.claim("emails", worker="<i>w1</i>")
    store.nack(lease, HOSTILE, delay=0)
    sign_in(page, server)
    page.locator(f'a.id[title="{message.id}"]').click()
    live(page)
    steps = page.locator(".timeline li")
    expect(steps).to_have_count(3)
    (lease,) = store.claim("emails", worker="w2")
    store.ack(lease, {"sent": HOSTILE})
    expect(steps).to_have_count(5)
    assert [step.locator("b").inner_text() for step in steps.all()] == ["publish", "claim", "nack", "claim", "ack"]
    expect(page.locator("main")).to_contain_text("attempt 2")
    expect(page.get_by_text("window.pwned").first).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script, main img").count() == 0
    assert "{{ 7*7 }}" in page.locator("pre").first.inner_text()


def test_a_queue_leads_to_its_messages_by_state(page: Page, server: Server, store: tampu.Store) -> None:
    store.publish("emails", 1, delay=3600)
    message = store.publish("emails", 2)
    sign_in(page, server)
    page.get_by_role("link", name="emails", exact=True).click()
    page.get_by_role("link", name="newest messages").click()
    expect(page.locator("#messages tbody tr")).to_have_count(2)
    page.get_by_role("link", name="ready", exact=True).click()
    expect(page.locator("#messages tbody tr")).to_have_count(1)
    expect(page.locator(f'a.id[title="{message.id}"]')).to_be_visible()


def test_everything_can_be_done_with_the_keyboard(page: Page, server: Server, store: tampu.Store) -> None:
    message = store.publish("emails", 1)
    page.goto(server.url)
    expect(page.get_by_label("Key")).to_be_focused()
    page.keyboard.type(server.token)
    page.keyboard.press("Enter")
    live(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("group", name="Queues")).to_be_focused()  # a wide table is scrolled with the keyboard
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="emails")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type(message.id)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=message.id)).to_be_visible()


def test_a_revoked_key_is_signed_out_while_it_looks(page: Page, server: Server, store: tampu.Store) -> None:
    ring = KeyAdmin(server.state.core, "*")
    made = access.core(store).drive(
        KeyAdmin(access.core(store), "*").create("short", [parse("view")], tenant="default")
    )
    sign_in(page, server, made.token)
    live(page)
    access.core(store).drive(ring.revoke(made.key.id))
    expect(page.get_by_label("Key")).to_be_visible()


def test_a_key_sees_only_its_queues(page: Page, server: Server, store: tampu.Store) -> None:
    store.publish("emails", 1)
    secret = store.publish("secret", 1)
    made = access.core(store).drive(
        KeyAdmin(access.core(store), "*").create("some", [parse("view:emails")], tenant="default")
    )
    sign_in(page, server, made.token)
    expect(page.get_by_role("link", name="emails")).to_be_visible()
    assert "secret" not in page.content()
    page.goto(f"{server.url}/messages/{secret.id}")
    expect(page.get_by_role("heading")).to_have_text("Not found")
    page.goto(f"{server.url}/queues/secret")
    expect(page.get_by_role("heading")).to_have_text("Forbidden")


def test_a_server_that_comes_back_is_followed_again(page: Page, server: Server, store: tampu.Store) -> None:
    store.publish("emails", 1)
    sign_in(page, server)
    live(page)
    server.stop()
    expect(page.get_by_role("status")).not_to_have_text("live")
    store.publish("emails", 2)
    again = Server(**{**msgspec.structs.asdict(server.settings), "port": int(server.url.rpartition(":")[2])})
    try:
        live(page)
        expect(cell(page, "emails", "ready")).to_have_text("2")
    finally:
        again.stop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(page: Page, server: Server, store: tampu.Store, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of the two it knows
    store.publish("emails", 1)
    sign_in(page, server)
    back, text = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    shades = [sum(int(n) for n in colour[4:-1].split(",")) for colour in (back, text)]
    assert abs(shades[0] - shades[1]) > 450
    assert (shades[0] < shades[1]) is (scheme == "dark")
