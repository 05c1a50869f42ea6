"""Each act of the console in a real browser: it asks, says what it will do, does it, and says that it was done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import tampu
from tests.browser.conftest import sign_in
from tests.servers.http import Server


class Person:
    """Somebody at the console of a shop."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server

    def open(self, path: str) -> None:
        self.page.goto(f"{self.server.url}/{path}")

    def act(self, link: str, button: str | None = None, notice: str | None = None, **fields: str) -> None:
        """Follow a link that asks, fill in the fields, press the button in the dialog, and read the notice."""
        self.page.get_by_role("link", name=link, exact=True).first.click()
        dialog = self.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        for label, value in fields.items():
            field = dialog.get_by_label(label, exact=True)
            if value == "tick":
                field.check()
            elif field.evaluate("(one) => one.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        dialog.get_by_role("button", name=button or link, exact=button is not None).click()
        if notice is not None:
            expect(self.page.locator("#notice")).to_contain_text(notice)


@pytest.fixture(scope="module")
def cookies() -> list[Any]:
    return []


@pytest.fixture
def person(new_page: Callable[..., Page], shop: Server, cookies: list[Any]) -> Person:
    page = new_page()
    if cookies:
        page.context.add_cookies(cookies)
    else:
        sign_in(page, shop)
        cookies += page.context.cookies()
    return Person(page, shop)


@pytest.fixture
def store(shop: Server) -> Iterator[tampu.Store]:
    with tampu.open(shop.settings.url, maintenance=False) as made:
        yield made


def _acts(store: tampu.Store) -> list[tuple[str, str]]:
    """What the audit trail says that the key of the console did."""
    return [(one.action, one.target) for one in store.audit(limit=10_000) if one.actor == "admin"]


def test_a_queue_is_made_paused_drained_closed_changed_and_removed(person: Person, store: tampu.Store) -> None:
    person.open("queues")
    person.act("New queue", "Make it", "Made the queue stock.", Name="stock")
    for link, notice in (("Pause", "paused"), ("Resume", "resumed"), ("Drain", "draining"), ("Resume", "resumed"),
                         ("Close", "closed"), ("Resume", "resumed")):  # fmt: skip
        person.act(link, link, f"stock is {notice}.")
    fields = {"max_attempts": "7", "lease": "2m", "ordering": "priority"}
    person.act("Change", "Save", "Changed ordering, max_attempts, lease", **fields)
    config = store.queues.get("stock")
    assert (config.max_attempts, config.lease, config.ordering) == (7, 120.0, "priority")
    expect(person.page.locator("#settings")).to_contain_text("2.0 min")
    person.act("Remove", "Remove it", "Removed stock", **{"Type its name": "stock"})
    assert "stock" not in store.queues.list()
    assert [action for action, target in _acts(store) if target == "stock"][-3:-1] == ["queue.remove", "queue.purge"]


def test_a_message_is_published_from_the_example_of_its_schema(person: Person, store: tampu.Store) -> None:
    person.open("queues/shop.orders")
    person.page.get_by_role("link", name="Publish", exact=True).click()
    payload = person.page.get_by_label("Payload", exact=True)
    expect(payload).to_have_value('{\n  "customer": 0,\n  "total": 0\n}')
    payload.fill("{not json")
    person.page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(person.page.get_by_role("alert")).to_contain_text("payload is not JSON")
    expect(person.page.get_by_label("Payload", exact=True)).to_have_value("{not json")
    person.page.get_by_label("Payload", exact=True).fill('{"customer": 5, "total": 9.5}')
    person.page.get_by_label("Labels", exact=True).fill("customer=5, plan=pro")
    person.page.get_by_role("button", name="Publish").click()
    expect(person.page.locator("#notice")).to_contain_text("Published")
    id = person.page.locator("h1").inner_text()
    message = store.get(id)
    assert (message.payload, message.labels) == ({"customer": 5, "total": 9.5}, {"customer": "5", "plan": "pro"})
    assert ("message.publish", id) in _acts(store)


def _dead(store: tampu.Store, queue: str, payload: Any, error: str) -> str:
    store.queues.put(queue, max_attempts=1)
    id = store.publish(queue, payload, type="try").id
    (lease,) = store.claim(queue)
    store.nack(lease, error)
    return id


def test_a_message_is_cancelled_freed_rejected_replayed_edited_and_purged(person: Person, store: tampu.Store) -> None:
    waiting, held, other = (store.publish("acts", n, hold=hold) for n, hold in ((1, None), (2, "look"), (3, "look")))
    person.open(f"messages/{waiting.id}")
    person.act("Cancel", "Cancel the message", "Cancelled.")
    person.open(f"messages/{held.id}")
    person.act("Free", "Free", "It is free.")
    person.open(f"messages/{other.id}")
    person.act("Reject", "Reject", "It is dead now.", Reason="no longer needed")
    assert (store.get(other.id).state, store.get(other.id).reason) == ("dead", "no longer needed")
    person.act("Replay", "Replay", "It is ready again")
    assert store.get(other.id).state == "ready"
    dead = _dead(store, "tries", {"to": "nobody"}, "no such user")
    person.open(f"messages/{dead}")
    person.act("Edit and replay", "Publish it", "Published with the new payload", **{"Payload (JSON)": '{"to": "ada"}'})
    edited = store.get(person.page.locator("h1").inner_text())
    assert (edited.payload, edited.type, edited.causation_id, edited.state) == ({"to": "ada"}, "try", dead, "ready")
    (lease,) = store.claim("tries", worker="w-9")
    person.page.reload()
    person.act("Ask to stop", "Ask to stop", "asked to stop")
    assert store.get(edited.id).cancel_requested
    store.ack(lease)
    gone = _dead(store, "tries", 1, "gone")
    person.open(f"messages/{gone}")
    person.act("Purge", "Purge", "Removed")
    with pytest.raises(tampu.NotFound):
        store.get(gone)
    assert {action for action, target in _acts(store) if target in (waiting.id, held.id, other.id, dead)} >= {
        "message.cancel", "message.free", "message.reject", "message.edit",
    }  # fmt: skip


def test_dead_letters_are_replayed_undone_and_purged_by_their_error(person: Person, store: tampu.Store) -> None:
    for n in range(3):
        _dead(store, "mail", n, f"mailbox {n} is full")
    person.open("dead?queue=mail")
    expect(person.page.locator("#groups tbody tr")).to_have_count(1)
    person.page.get_by_role("link", name="Replay", exact=True).click()
    dialog = person.page.get_by_role("dialog")
    expect(dialog).to_contain_text("mail")
    dialog.get_by_role("button", name="Replay 3").click()
    expect(person.page.locator("#notice")).to_contain_text("Replayed 3 messages")
    assert store.stats("mail").ready == 3
    person.act("Undo", "Undo", "3 messages dead again")
    assert store.stats("mail").dead == 3
    person.open("dead?queue=mail")
    person.page.locator("#groups tbody th a").click()
    person.page.get_by_label("Choose all").check()
    person.page.get_by_role("button", name="Replay the chosen").click()
    expect(person.page.locator("main")).to_contain_text("3 chosen messages")
    person.page.go_back()
    person.act("Purge", "Purge 3")
    expect(person.page.get_by_role("alert")).to_contain_text("tick the box")
    person.page.get_by_label("I am sure").check()
    person.page.get_by_role("button", name="Purge").click()
    expect(person.page.locator("#notice")).to_contain_text("Removed 3 dead letters.")
    assert store.stats("mail").dead == 0
    _dead(store, "mail", 9, "again")
    person.open("queues/mail")
    person.act("Purge them", "Purge 1", "Removed 1 dead message of mail.")


def test_a_review_is_taken_commented_and_decided(person: Person, store: tampu.Store) -> None:
    message = store.publish("refunds", {"amount": 99, "to": "c9"}, review="refund")
    person.open(f"reviews/{message.id}")
    person.act("Take it", "Take it", "It is yours")
    person.act("Comment", "Add", "Added your comment.", Comment="looks <b>fine</b>")
    person.act("approve", "approve", "Decided: approve.", note="paid by card")
    found = store.get(message.id)
    assert found.state == "ready"
    assert found.review is not None
    assert found.review.decision is not None
    assert (found.review.decision.by, found.review.decision.fields) == ("admin", {"note": "paid by card"})
    other = store.publish("refunds", {"amount": 1, "to": "c9"}, review="refund")
    person.open(f"reviews/{other.id}")
    person.act("Reassign", "Reassign", "Reassigned.", **{"To this person": "admin"})
    person.act("refuse", "refuse", "Decided: refuse.")
    assert store.get(other.id).state == "dead"


def test_a_schedule_runs_now_is_paused_resumed_and_deleted(person: Person, store: tampu.Store) -> None:
    store.schedules.put("hourly", queue="ticks", every=3600, payload=1)
    before = store.stats("ticks").ready if "ticks" in store.queues.list() else 0
    person.open("schedules")
    row = "hourly"
    for link, notice in (("Run now", "Published"), ("Pause", "Paused hourly."), ("Resume", "Resumed hourly."),
                         ("Delete", "Deleted hourly.")):  # fmt: skip
        person.open("schedules")
        person.page.locator(f"#{row}").get_by_role("link", name=link, exact=True).click()
        person.page.get_by_role("dialog").get_by_role("button", name=link).click()
        expect(person.page.locator("#notice")).to_contain_text(notice)
    assert store.stats("ticks").ready >= before + 1
    assert "hourly" not in [one.name for one in store.schedules.list()]


def test_a_rule_is_put_tested_and_deleted_and_so_are_schemas_and_alerts(person: Person, store: tampu.Store) -> None:
    person.open("rules")
    rule = '{"when": "message.payload.n > 3", "queues": ["numbers"], "actions": [{"route": "large"}]}'
    person.act("New rule", "Store", "Stored rule big, version 1.", Name="big", **{"Definition (JSON)": rule})
    person.open("rules/big")
    for payload, said in (('{"n": 9}', "It matches"), ('{"n": 1}', "It does not match")):
        person.page.get_by_label("Or a payload (JSON)").fill(payload)
        person.page.get_by_label("Queue", exact=True).fill("numbers")
        person.page.get_by_role("button", name="Test").click()
        expect(person.page.locator("#tested")).to_contain_text(said)
    person.act("Change", "Store", "version 2", **{"Definition (JSON)": rule.replace("3", "30")})
    person.page.get_by_role("row", name="big").get_by_role("link", name="Delete").click()
    person.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(person.page.locator("#notice")).to_have_text("Deleted rule big.")
    assert [one.name for one in store.rules.list()] == ["large-orders"]
    for path, link, text in (
        ("schemas", "New schema", '{"schema": {"type": "integer"}, "queues": ["numbers"]}'),
        ("agents", "New alert", '{"measure": "oldest", "above": 60, "queues": ["numbers"]}'),
    ):
        person.open(path)
        person.act(link, "Store", "version 1.", Name="ours", **{"Definition (JSON)": text})
        person.page.get_by_role("row", name="ours").get_by_role("link", name="Delete").click()
        person.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(person.page.locator("#notice")).to_contain_text("ours.")


def test_an_agent_is_run_paused_and_resumed(person: Person, store: tampu.Store) -> None:
    for link, button in (("Run now", "Run"), ("Pause", "Pause"), ("Resume", "Resume")):
        person.open("agents")
        person.page.locator("#retention").get_by_role("link", name=link, exact=True).click()
        person.page.get_by_role("dialog").get_by_role("button", name=button).click()
        expect(person.page.locator("#notice")).to_contain_text("retention is")
    assert store.agents.get("retention").status == "active"


def test_a_key_is_made_shown_once_rotated_and_revoked(person: Person, store: tampu.Store) -> None:
    person.open("keys")
    person.act("New key", "Make it", None, Name="shop front", **{"Grants, one on each line": "view,publish:shop.*"})
    secret = person.page.locator("#token").inner_text()
    with tampu.open(person.server.url, token=secret) as limited:
        assert limited.stats("shop.emails").queue == "shop.emails"
        with pytest.raises(tampu.Forbidden):
            limited.stats("reports")
    person.page.get_by_role("link", name="Done").click()
    row = person.page.get_by_role("row", name="shop front")
    assert secret not in person.page.content()
    row.get_by_role("link", name="Rotate").click()
    person.page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    assert person.page.locator("#token").inner_text() != secret
    person.page.get_by_role("link", name="Done").click()
    row.get_by_role("link", name="Revoke").click()
    person.page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(person.page.locator("#notice")).to_have_text("Revoked shop front.")
    with pytest.raises(tampu.Unauthorized), tampu.open(person.server.url, token=secret) as revoked:
        revoked.stats("shop.emails")


def test_a_question_is_closed_without_an_effect(person: Person, store: tampu.Store) -> None:
    person.open("queues/shop.emails")
    person.page.get_by_role("link", name="Pause", exact=True).click()
    person.page.get_by_role("dialog").get_by_role("link", name="Cancel").click()
    expect(person.page.get_by_role("dialog")).to_have_count(0)
    person.page.get_by_role("link", name="Pause", exact=True).focus()
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_role("dialog")).to_be_visible()
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("dialog")).to_have_count(0)
    assert store.queues.get("shop.emails").status == "open"


def test_a_question_that_cannot_be_fetched_is_not_an_older_one(person: Person, store: tampu.Store) -> None:
    store.queues.put("asked", max_attempts=2)
    person.open("queues/asked")
    person.page.get_by_role("link", name="Pause", exact=True).click()
    person.page.get_by_role("dialog").get_by_role("link", name="Cancel").click()
    person.page.route("**/status/drain", lambda route: route.abort(), times=1)
    person.page.get_by_role("link", name="Drain", exact=True).click()
    expect(person.page.get_by_role("heading", name="Drain asked?")).to_be_visible()
