"""get and messages: keyset pages that see each message once, in the order of its index."""

import pytest

from tampu import InvalidMessage, NewMessage, NotFound, State, Where
from tampu.broker.queue import Queue
from tests.conformance.house import House


def _pages(q: Queue, limit: int, **options: object) -> list[str]:
    found, after = [], None
    while True:
        page = q.messages("emails", limit=limit, after=after, **options)  # type: ignore[arg-type]  # a bag of options
        assert len(page) <= limit
        found += [m.id for m in page]
        after = page.cursor
        if after is None:
            return found


def _fill(q: Queue, house: House) -> dict[str, list[str]]:
    """Seven messages in each state; ids by state, in the order they should be listed."""
    made: dict[str, list[str]] = {str(state): [] for state in State}
    for n in range(7):
        for state in ("done", "dead", "leased"):
            made[state].append(q.publish("emails", n).id)
            lease = q.claim("emails", lease=10**6)[0]
            if state != "leased":
                (q.ack if state == "done" else q.reject)(lease)
        made["cancelled"].append(q.publish("emails", n).id)
        q.cancel(made["cancelled"][-1])
        made["expired"].append(q.publish("emails", n, ttl=0.001).id)
        house.clock.advance(0.001)
        house.sweep()
    for n in range(7):
        made["ready"].append(q.publish("emails", n).id)
        made["delayed"].insert(0, q.publish("emails", n, delay=1000 - n).id)
        made["held"].append(q.publish("emails", n, hold="x").id)
    return made


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_of_each_state_give_every_message_once_in_order(q: Queue, house: House, limit: int) -> None:
    made = _fill(q, house)
    for state in State:
        assert _pages(q, limit, state=state) == made[state], state


@pytest.mark.parametrize("limit", [1, 4, 9, 56, 1000])
def test_pages_of_all_states_give_every_message_once(q: Queue, house: House, limit: int) -> None:
    made = _fill(q, house)
    found = _pages(q, limit)
    assert sorted(found) == sorted(id for ids in made.values() for id in ids)


@pytest.mark.parametrize("state", ["ready", "delayed", "dead", "done", "held"])
def test_paging_sees_each_message_once_while_others_are_added(q: Queue, house: House, state: str) -> None:
    made = _fill(q, house)[state]
    found, after = [], None
    while True:
        page = q.messages("emails", state=state, limit=2, after=after)
        found += [m.id for m in page]
        after = page.cursor
        if after is None:
            break
        q.publish("emails", "new", delay=2000 if state == "delayed" else None, hold="x" if state == "held" else None)
        if len(found) < 5 and state in ("dead", "done"):
            house.clock.advance(1)
            lease = q.claim("emails", limit=100)[-1]
            (q.ack if state == "done" else q.reject)(lease)
        if len(found) > 30:
            break
    assert len(found) == len(set(found))
    assert found[: len(made)] == made


def test_a_message_that_left_meanwhile_does_not_upset_the_pages(q: Queue) -> None:
    made = [m.id for m in q.publish_many("emails", range(6))]
    page = q.messages("emails", state="ready", limit=3)
    q.cancel(made[2], made[3])
    rest = q.messages("emails", state="ready", limit=10, after=page.cursor)
    assert [m.id for m in rest] == made[4:]


def test_filters_hold_for_every_page(q: Queue) -> None:
    q.publish_many("emails", [NewMessage(n, type="odd" if n % 2 else "even") for n in range(20)])
    found = []
    after = None
    while True:
        page = q.messages("emails", limit=3, where=Where(type="odd"), after=after)
        found += [m.payload for m in page]
        after = page.cursor
        if after is None:
            break
    assert found == list(range(1, 20, 2))


def test_listing_shows_reason_error_and_times(q: Queue, house: House) -> None:
    q.publish("emails", 1)
    q.reject(q.claim("emails")[0], reason="oversize", error="too big")
    q.publish("emails", 2, hold="review")
    dead, held = q.messages("emails", state="dead").messages[0], q.messages("emails", state="held").messages[0]
    assert (dead.reason, dead.last_error, dead.ended_at) == ("oversize", "too big", house.clock.time)
    assert held.reason == "review"


def test_an_empty_queue_has_an_empty_page(q: Queue) -> None:
    q.queues.put("emails", max_attempts=1)
    page = q.messages("emails")
    assert (list(page), page.cursor, len(page)) == ([], None, 0)


def test_listing_a_queue_that_does_not_exist_is_not_found(q: Queue) -> None:
    with pytest.raises(NotFound):
        q.messages("nowhere")


def test_a_cursor_of_another_state_is_refused(q: Queue) -> None:
    q.publish_many("emails", range(4))
    cursor = q.messages("emails", state="ready", limit=2).cursor
    assert cursor is not None
    with pytest.raises(InvalidMessage):
        q.messages("emails", state="dead", after=cursor)


def test_a_cursor_is_good_after_opening_again(house: House) -> None:
    q = house.open()
    made = [m.id for m in q.publish_many("emails", range(4))]
    cursor = q.messages("emails", limit=2).cursor
    assert [m.id for m in house.reopen().messages("emails", after=cursor)] == made[2:]


@pytest.mark.parametrize(
    "id", ["019b76da-a800-7000-8000-000000000001", "ffffffff-ffff-7fff-bfff-ffffffffffff", "0" * 32]
)
def test_an_id_that_was_never_given_out_is_not_found(q: Queue, id: str) -> None:
    q.publish("emails", 1)
    with pytest.raises(NotFound) as missing:
        q.get(id)
    assert (missing.value.code, missing.value.field) == ("not_found", "id")


def test_ids_beyond_all_times_are_not_found(q: Queue) -> None:
    made = q.publish("emails", 1).id
    for id in ("ffffffff-ffff" + made[13:], "00000000-0000" + made[13:], made[:-1] + ("0" if made[-1] != "0" else "1")):
        with pytest.raises(NotFound):
            q.get(id)
        assert isinstance(q.cancel(id)[0].error, NotFound)


def test_ids_are_found_in_any_spelling_of_a_uuid(q: Queue) -> None:
    message = q.publish("emails", 1)
    for spelling in (message.id.upper(), message.id.replace("-", ""), f"{{{message.id}}}"):
        assert q.get(spelling).id == message.id
