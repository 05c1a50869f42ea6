"""Each page of the console in a real browser: it shows what it should, in light and dark, wide and on a phone."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

import tampu
from tampu.server.console.pages import PAGES
from tests.browser.conftest import faults, live, picture, sign_in
from tests.servers.http import Server

SHOWN = {
    "": ("Overview", "Needs attention"),
    "queues": ("Queues", "shop.orders"),
    "queues/shop.emails": ("shop.emails", "Settings"),
    "messages?queue=shop.orders": ("Messages", "order.place"),
    "dead": ("Dead letters", "no address for customer 4711"),
    "reviews": ("Reviews", "refund"),
    "schedules": ("Schedules", "nightly-report"),
    "rules": ("Rules", "large-orders"),
    "rules/large-orders": ("large-orders", "Test it on a message"),
    "schemas": ("Schemas", "order"),
    "schemas/order": ("order", "An example that matches"),
    "workers": ("Workers", "batch-2:98"),
    "agents": ("Agents and alerts", "dead-emails"),
    "insights": ("Insights", "the journal says of the last hour"),
    "keys": ("Keys", "admin"),
    "audit": ("Audit", "schema.put"),
    "docs": ("API", "/v1/queues/{queue}/messages"),
    "queues/shop.orders/publish": ("Queues", "Publish to shop.orders"),
    "queues/shop.orders/settings": ("Queues", "Settings of shop.orders"),
    "dead/purge?queue=*": ("Dead letters", "I am sure"),
    "keys/make": ("Keys", "Its secret is shown once"),
    "put/rules": ("Rules", "A new rule"),
}
"""Heading and some text of each address."""
PICTURES = {"": "dashboard", "queues/shop.emails": "console-queue", "dead": "console-dead"}


@pytest.fixture(scope="module")
def signed_in(shop: Server) -> dict[str, list[dict[str, object]]]:
    """The cookies of a session, which the tests share: signing in takes as long as a page."""
    return {}


@pytest.fixture
def seen(new_page: Callable[..., Page], shop: Server, signed_in: dict[str, list[dict[str, object]]]) -> Page:
    page = new_page()
    if not signed_in:
        sign_in(page, shop)
        signed_in["cookies"] = page.context.cookies()  # type: ignore[assignment]  # as they are added again
    else:
        page.context.add_cookies(signed_in["cookies"])  # type: ignore[arg-type]  # as they were read
    return page


def test_every_page_of_the_navigation_is_looked_at() -> None:
    assert {page.path for page in PAGES if page.listed} <= {path.partition("?")[0] for path in SHOWN}


def _look(page: Page, server: Server, path: str, heading: str, text: str) -> None:
    page.goto(f"{server.url}/{path}")
    expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()
    expect(page.locator("main")).to_contain_text(text)


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_shows_its_things_and_axe_finds_no_fault(seen: Page, shop: Server, path: str) -> None:
    _look(seen, shop, path, *SHOWN[path])
    current = seen.locator('nav[aria-label="Pages"] a[aria-current="page"]')
    expect(current).to_have_count(1)
    assert faults(seen) == []
    if path in PICTURES:
        live(seen)
        picture(seen, PICTURES[path])
    seen.set_viewport_size({"width": 390, "height": 844})
    if path in PICTURES:  # the other pages are made of the same pieces, and the colours have a test of their own
        seen.emulate_media(color_scheme="dark")
        assert faults(seen, contrast_only=True) == []
    assert seen.evaluate("document.documentElement.scrollWidth") <= 390, "it is wider than a phone"
    if path == "" and os.environ.get("TAMPU_PICTURES"):
        picture(seen, "console-phone")


def test_a_message_and_a_review_are_free_of_faults(seen: Page, shop: Server) -> None:
    _look(seen, shop, "messages?state=dead", "Messages", "send")
    seen.locator("#messages td .id").first.click()
    expect(seen.get_by_role("heading", name="Failed attempts")).to_be_visible()
    expect(seen.locator("main")).to_contain_text("shop/tasks.py")
    assert faults(seen) == []
    picture(seen, "console-message")
    seen.goto(f"{shop.url}/reviews")
    seen.locator("#reviews th a").click()
    expect(seen.locator("main")).to_contain_text("40 EUR to c7")
    assert faults(seen) == []


def test_the_last_hour_is_there_at_once(seen: Page, shop: Server) -> None:
    seen.goto(shop.url)
    chart = seen.locator('figure[aria-label="Messages per minute"] [data-chart]')
    expect(chart.locator("canvas")).to_be_visible()
    values = seen.evaluate("JSON.parse(document.querySelector('[data-chart]').dataset.chart)")
    published = next(one["values"] for one in values["series"] if one["name"] == "published")
    assert len(values["x"]) == len(published) >= 59
    assert sum(count > 0 for count in published) > 50


def test_without_a_script_pages_and_acts_work(
    new_page: Callable[..., Page], shop: Server, seen: Page, signed_in: dict[str, list[dict[str, object]]]
) -> None:
    plain = new_page(java_script_enabled=False)
    plain.context.add_cookies(signed_in["cookies"])  # type: ignore[arg-type]  # as they were read
    plain.goto(f"{shop.url}/queues/reports")
    plain.get_by_role("link", name="Pause").click()
    expect(plain.get_by_role("heading", name="Pause reports?")).to_be_visible()
    plain.get_by_role("button", name="Pause").click()
    expect(plain.locator("#notice")).to_have_text("reports is paused.")
    plain.get_by_role("link", name="Resume").click()
    plain.get_by_role("button", name="Resume").click()
    expect(plain.locator("#notice")).to_have_text("reports is resumed.")
    plain.reload()
    expect(plain.locator("#notice")).to_have_count(0)


def test_what_is_published_elsewhere_appears_and_what_is_typed_stays(seen: Page, shop: Server) -> None:
    with tampu.open(shop.settings.url, maintenance=False) as store:
        seen.goto(f"{shop.url}/messages?queue=news")
        live(seen)
        seen.get_by_label("Key", exact=True).fill("half typed")
        seen.locator("h1").click()
        first = store.publish("news", {"n": 1}, type="first")
        expect(seen.locator(f'a.id[title="{first.id}"]')).to_be_visible()
        expect(seen.get_by_label("Key", exact=True)).to_have_value("half typed")


def test_the_search_finds_queues_messages_and_stories(seen: Page, shop: Server) -> None:
    with tampu.open(shop.settings.url, maintenance=False) as store:
        (message,) = list(store.messages("reports", state="leased", limit=1))
    for text, heading in (("shop.orders", "shop.orders"), (message.id, message.id), ("report-7", "Messages")):
        seen.goto(shop.url)
        seen.keyboard.press("/")
        seen.keyboard.type(text)
        seen.keyboard.press("Enter")
        expect(seen.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()


def test_the_tabs_of_a_payload_show_it_raw_and_in_hexadecimal(seen: Page, shop: Server) -> None:
    with tampu.open(shop.settings.url, maintenance=False) as store:
        message = store.publish("news", b"\x00\x01tampu", content_type="application/octet-stream")
    seen.goto(f"{shop.url}/messages/{message.id}")
    seen.get_by_role("link", name="hex").click()
    expect(seen.get_by_label("Payload", exact=True)).to_contain_text("00 01 74 61 6d 70 75")
