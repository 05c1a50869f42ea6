"""Pages and claims are bounded by bytes too: 10,000 messages of a listing were more than a gigabyte."""

from __future__ import annotations

from typing import Any

import pytest

import tampu
from tampu.server import claim_sizes
from tests.server.web import Web
from tests.servers.http import Stall

LARGE = "x" * 200_000
MOST = 12 << 20
"""A little more than the budget: whole messages, as JSON."""


@pytest.fixture
def large(stall: Stall) -> int:
    """100 messages of 20 MB together, then 50 small ones."""
    with tampu.open(stall.url, token=stall.token) as store:
        for _ in range(4):
            store.publish_many("jobs", [LARGE] * 25)
        store.publish_many("jobs", range(50))
    return 150


def test_a_page_ends_when_it_is_large_and_its_cursor_goes_on(web: Web, large: int) -> None:
    seen: list[str] = []
    after, pages = "", 0
    while True:
        page = web.get(f"/v1/queues/jobs/messages?limit=10000{after}")
        assert len(page.raw) < MOST
        seen += [message["id"] for message in page.json["messages"]]
        pages += 1
        if "cursor" not in page.json:
            break
        after = f"&after={page.json['cursor']}"
    assert len(seen) == len(set(seen)) == large
    assert pages == 3


def test_a_filter_finds_the_same_in_small_steps(web: Web, large: int) -> None:
    found = web.get("/v1/queues/jobs/messages?limit=10000&type=nothing").json
    assert (found["messages"], found.get("cursor")) == ([], None)
    with_type = web.post("/v1/queues/jobs/messages?type=rare", b"1")
    assert [m["id"] for m in web.get("/v1/queues/jobs/messages?type=rare").json["messages"]] == [with_type.json["id"]]


def test_small_messages_fill_a_page(web: Web) -> None:
    web.post("/v1/queues/jobs/publish", {"messages": [{"payload": n} for n in range(3000)]})
    page = web.get("/v1/queues/jobs/messages?limit=2500").json
    assert len(page["messages"]) == 2500
    assert len(web.get(f"/v1/queues/jobs/messages?limit=2500&after={page['cursor']}").json["messages"]) == 500


def test_a_claim_takes_no_more_than_fits_into_its_answer(web: Web, large: int) -> None:
    claimed: list[Any] = []
    while True:
        answer = web.post("/v1/claim", {"queues": "jobs", "limit": 10_000})
        assert len(answer.raw) < MOST
        if not answer.json["leases"]:
            break
        claimed += [lease["message"]["id"] for lease in answer.json["leases"]]
    assert len(claimed) == len(set(claimed)) == large


def test_a_claim_of_small_messages_takes_as_many_as_it_wants(web: Web) -> None:
    web.post("/v1/queues/jobs/publish", {"messages": [{"payload": n} for n in range(3000)]})
    for expected in (2500, 500):
        leases = web.post("/v1/claim", {"queues": "jobs", "limit": 2500}).json["leases"]
        assert [lease["message"]["payload"] for lease in leases] == sorted(
            lease["message"]["payload"] for lease in leases
        )
        assert len(leases) == expected


@pytest.mark.parametrize("by_ids", [True, False])
def test_a_replay_answers_in_parts(web: Web, stall: Stall, large: int, by_ids: bool) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        while leases := store.claim("jobs", limit=100):
            store.settle([tampu.Reject(lease, reason="bad") for lease in leases])
        dead = [message.id for message in store.replay("jobs", where={}, dry_run=True).messages]
        assert len(dead) == large
    body: dict[str, Any] = {"ids": dead} if by_ids else {"where": {}}
    seen: list[str] = []
    cursors = []
    while True:
        answer = web.post("/v1/queues/jobs/replay", body)
        assert len(answer.raw) < MOST
        assert all("error" not in outcome for outcome in answer.json["outcomes"])
        seen += [message["id"] for message in answer.json["messages"]]
        if "cursor" not in answer.json:
            break
        body["after"] = answer.json["cursor"]
        cursors.append(body["after"])
    assert seen == dead
    assert len(cursors) == 2
    assert web.get("/v1/queues/jobs/stats").json["counts"]["ready"] == large


@pytest.mark.parametrize("after", ["x", "-1", "9" * 5000, "٣x"])
def test_a_strange_cursor_of_a_replay_is_refused(web: Web, after: str) -> None:
    web.post("/v1/queues/jobs/messages", b"1")
    choices: list[dict[str, Any]] = [{"ids": []}, {"where": {}}]
    for choice in choices:
        assert web.post("/v1/queues/jobs/replay", {**choice, "after": after}).code == "invalid_message"


def test_the_client_replays_all_parts(stall: Stall, large: int) -> None:
    with tampu.open(stall.url, token=stall.token) as store:
        while leases := store.claim("jobs", limit=100):
            store.settle([tampu.Reject(lease, reason="bad") for lease in leases])
        assert len(store.replay("jobs", where={}, limit=60, dry_run=True)) == 60
        chosen = [message.id for message in store.replay("jobs", where={}, limit=110).messages]
        assert (len(chosen), store.stats("jobs").ready, store.stats("jobs").dead) == (110, 110, 40)
        again = store.replay("jobs", ids=[*chosen[:1], *(m.id for m in store.messages("jobs", state="dead"))])
        assert [outcome.ok for outcome in again.outcomes] == [False] + [True] * 40
        assert store.stats("jobs").ready == large


def test_a_stream_pushes_no_more_than_fits(stall: Stall, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    note = claim_sizes.ClaimSizes.note

    def noting(self: Any, tenant: str, queues: Any, leases: Any) -> None:
        sizes.append(claim_sizes.size(leases))
        note(self, tenant, queues, leases)

    monkeypatch.setattr(claim_sizes.ClaimSizes, "note", noting)
    with tampu.open(stall.url, token=stall.token) as store, store.stream("jobs", credit=150) as stream:
        assert all(stream.next(60) is not None for _ in range(150))
    assert max(sizes) < MOST
