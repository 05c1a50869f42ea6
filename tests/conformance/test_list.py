"""get and messages: pages contain each message once, in the order of its index."""

import pytest

from tampu import InvalidMessage, NewMessage, NotFound, State, Where
from tampu.broker.store import Store
from tests.conformance.harness import Harness


def _pages(store: Store, limit: int, **options: object) -> list[str]:
    found, after = [], None
    while True:
        page = store.messages("emails", limit=limit, after=after, **options)  # type: ignore[arg-type]  # a bag of options
        assert len(page) <= limit
        found += [m.id for m in page]
        after = page.cursor
        if after is None:
            return found


def _fill(store: Store, harness: Harness) -> dict[str, list[str]]:
    """Seven messages in each state; ids by state, in the order they should be listed."""
    made: dict[str, list[str]] = {str(state): [] for state in State}
    for n in range(7):
        for state in ("done", "dead", "leased"):
            made[state].append(store.publish("emails", n).id)
            lease = store.claim("emails", lease=10**6)[0]
            if state != "leased":
                (store.ack if state == "done" else store.reject)(lease)
        made["cancelled"].append(store.publish("emails", n).id)
        store.cancel(made["cancelled"][-1])
        made["expired"].append(store.publish("emails", n, ttl=0.001).id)
        harness.clock.advance(0.001)
        harness.sweep()
    news = [[NewMessage(n), NewMessage(n, delay=1000 - n), NewMessage(n, hold="x")] for n in range(7)]
    ids = [message.id for message in store.publish_many("emails", [new for three in news for new in three])]
    return made | {"ready": ids[::3], "delayed": ids[1::3][::-1], "held": ids[2::3]}


def test_pages_of_each_state_give_every_message_once_in_order(store: Store, harness: Harness) -> None:
    made = _fill(store, harness)
    for limit in (1, 2, 3, 7, 100):
        for state in State:
            assert _pages(store, limit, state=state) == made[state], (limit, state)


def test_pages_of_all_states_give_every_message_once(store: Store, harness: Harness) -> None:
    made = _fill(store, harness)
    for limit in (1, 4, 9, 56, 1000):
        assert sorted(_pages(store, limit)) == sorted(id for ids in made.values() for id in ids), limit


@pytest.mark.parametrize("state", ["ready", "delayed", "dead", "done", "held"])
def test_paging_sees_each_message_once_while_others_are_added(store: Store, harness: Harness, state: str) -> None:
    made = _fill(store, harness)[state]
    found, after = [], None
    while True:
        page = store.messages("emails", state=state, limit=2, after=after)
        found += [m.id for m in page]
        after = page.cursor
        if after is None:
            break
        store.publish(
            "emails", "new", delay=2000 if state == "delayed" else None, hold="x" if state == "held" else None
        )
        if len(found) < 5 and state in ("dead", "done"):
            harness.clock.advance(1)
            lease = store.claim("emails", limit=100)[-1]
            (store.ack if state == "done" else store.reject)(lease)
        if len(found) > 30:
            break
    assert len(found) == len(set(found))
    assert found[: len(made)] == made


def test_a_message_that_left_meanwhile_does_not_disturb_the_pages(store: Store) -> None:
    made = [m.id for m in store.publish_many("emails", range(6))]
    page = store.messages("emails", state="ready", limit=3)
    store.cancel(made[2], made[3])
    rest = store.messages("emails", state="ready", limit=10, after=page.cursor)
    assert [m.id for m in rest] == made[4:]


def test_filters_apply_to_every_page(store: Store) -> None:
    store.publish_many("emails", [NewMessage(n, type="odd" if n % 2 else "even") for n in range(20)])
    found = []
    after = None
    while True:
        page = store.messages("emails", limit=3, where=Where(type="odd"), after=after)
        found += [m.payload for m in page]
        after = page.cursor
        if after is None:
            break
    assert found == list(range(1, 20, 2))


def test_listing_shows_reason_error_and_times(store: Store, harness: Harness) -> None:
    store.publish("emails", 1)
    store.reject(store.claim("emails")[0], reason="oversize", error="too big")
    store.publish("emails", 2, hold="review")
    dead, held = store.messages("emails", state="dead").messages[0], store.messages("emails", state="held").messages[0]
    assert (dead.reason, dead.last_error, dead.ended_at) == ("oversize", "too big", harness.clock.time)
    assert held.reason == "review"


def test_an_empty_queue_has_an_empty_page(store: Store) -> None:
    store.queues.put("emails", max_attempts=1)
    page = store.messages("emails")
    assert (list(page), page.cursor, len(page)) == ([], None, 0)


def test_listing_a_queue_that_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.messages("nowhere")


def test_a_cursor_of_another_state_is_refused(store: Store) -> None:
    store.publish_many("emails", range(4))
    cursor = store.messages("emails", state="ready", limit=2).cursor
    assert cursor is not None
    with pytest.raises(InvalidMessage):
        store.messages("emails", state="dead", after=cursor)


def test_a_cursor_is_good_after_opening_again(harness: Harness) -> None:
    store = harness.open()
    made = [m.id for m in store.publish_many("emails", range(4))]
    cursor = store.messages("emails", limit=2).cursor
    assert [m.id for m in harness.reopen().messages("emails", after=cursor)] == made[2:]


@pytest.mark.parametrize(
    "id", ["019b76da-a800-7000-8000-000000000001", "ffffffff-ffff-7fff-bfff-ffffffffffff", "0" * 32]
)
def test_an_id_that_was_never_used_is_not_found(store: Store, id: str) -> None:
    store.publish("emails", 1)
    with pytest.raises(NotFound) as missing:
        store.get(id)
    assert (missing.value.code, missing.value.field) == ("not_found", "id")


def test_ids_beyond_all_times_are_not_found(store: Store) -> None:
    made = store.publish("emails", 1).id
    for id in ("ffffffff-ffff" + made[13:], "00000000-0000" + made[13:], made[:-1] + ("0" if made[-1] != "0" else "1")):
        with pytest.raises(NotFound):
            store.get(id)
        assert isinstance(store.cancel(id)[0].error, NotFound)


def test_ids_are_found_in_any_spelling_of_a_uuid(store: Store) -> None:
    message = store.publish("emails", 1)
    for spelling in (message.id.upper(), message.id.replace("-", ""), f"{{{message.id}}}"):
        assert store.get(spelling).id == message.id
