"""Publish steps behind a server: raw bodies, and batches under a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tampu.broker import publish_steps
from tampu.broker.publish_steps import Batch, Draft
from tampu.broker.settings import Settings
from tests.server.web import Web


class Mirror:
    """Messages of one queue are marked, and copied to another."""

    def wants(self, queue: str, settings: Settings) -> bool:
        return queue == "jobs"

    def apply(self, batch: Batch, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            if draft.payload == "no":
                draft.refuse("not this one", field="payload")
            draft.change(labels={"marked": "yes"})
            batch.copy(draft, "mirror", "mirror")


@pytest.fixture
def mirror() -> Iterator[None]:
    with publish_steps.registered(Mirror()):
        yield


def messages(web: Web, queue: str) -> list[object]:
    return [(m["payload"], m.get("labels")) for m in web.get(f"/v1/queues/{queue}/messages").json["messages"]]


@pytest.mark.usefixtures("mirror")
def test_raw_bodies_and_batches_go_through_the_steps(web: Web) -> None:
    assert web.post("/v1/queues/jobs/messages", 1).status == 201
    refused = web.post("/v1/queues/jobs/messages", "no")
    assert (refused.status, refused.json["field"]) == (400, "payload")
    batch = {"messages": [{"payload": 2}, {"payload": 3}]}
    for _ in range(2):
        answer = web.post("/v1/queues/jobs/publish", batch, idempotency_key="k")
        assert answer.status == 200, answer.json
    refused = web.post("/v1/queues/jobs/publish", {"messages": [{"payload": 2}, {"payload": "no"}]})
    assert (refused.status, refused.json["field"]) == (400, "messages[1].payload")
    assert messages(web, "jobs") == messages(web, "mirror") == [(n, {"marked": "yes"}) for n in (1, 2, 3)]
