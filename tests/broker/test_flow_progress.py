"""What follows from the ends of members, computed on documents."""

from __future__ import annotations

import msgspec

from tampu.broker.policies.flows import ids, stored
from tampu.broker.policies.flows.progress import Graphs, Progress, Source
from tampu.engines.port import Document
from tampu.model.states import State


class Documents(Source):
    def __init__(self, found: dict[tuple[str, str], object]) -> None:
        self._found = {key: msgspec.json.encode(value) for key, value in found.items()}

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        value = self._found.get((kind, name))
        return None if value is None else Document(kind, tenant, name, 1, value)

    def documents(self, kind: str, tenant: str, prefix: str, limit: int | None = None) -> list[Document]:
        names = sorted(name for one, name in self._found if one == kind and name.startswith(prefix))
        return [one for name in names[:limit] if (one := self.document(kind, tenant, name)) is not None]


def graph(flow: str, size: int, **more: object) -> stored.Part:
    return msgspec.structs.replace(
        stored.Part(flow, size, [("jobs", size)], [("message", size)], [("fail", size)], [(None, size)]), **more
    )


def test_members_that_were_added_may_be_seen_before_the_one_that_has_added_them() -> None:
    """Their queues may be in another partition of the journal."""
    flow = ids.new_flow(0)
    first = ids.part_of(flow)
    adder = ids.member(first, 1)
    added = ids.derived_part(adder, 1)
    waits = stored.WaitSet([stored.Run(1, 1)], [stored.Run(2, 1)], False)
    source = Documents({
        (stored.PART, first): graph(flow, 2, sets=[waits]),
        (stored.PART, added): graph(flow, 1, adder=adder, joins=True),
        (stored.LINK, f"{flow}/{adder}/{added}"): ["jobs"],
    })  # fmt: skip
    progress = Progress(source, "default", Graphs())
    progress.see(ids.member(added, 1), State.READY, "publish", 1)
    progress.see(adder, State.DONE, "ack", 2)
    assert progress.letter(first, 1) == stored.DONE
    found = {(kind, name): value for kind, name, value in progress.finish()}
    assert found[stored.WAIT, f"{first}/00000"] == [[1, 0, 0, 0]]
    assert found[stored.COUNT, flow].letters == {stored.OPEN: 2, stored.DONE: 1}
    assert not progress.acts
    progress.see(ids.member(added, 1), State.DONE, "ack", 3)
    assert list(progress.finish())
    assert list(progress.acts) == [ids.member(first, 2)]
