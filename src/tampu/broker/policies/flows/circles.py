"""Members that are added so that who waits for the running one also waits for them: none may wait for those in turn."""

from __future__ import annotations

from tampu.broker.policies.flows import stored
from tampu.broker.policies.flows.ids import member
from tampu.engines.port import Engine
from tampu.model.errors import InvalidMessage

_MOST_LOOKED_AT = 200_000
_HINT = "name only members that do not wait for the running one, or pass joins=False"


def check_joins(engine: Engine, tenant: str, part: stored.Part) -> None:
    """Raise `InvalidMessage` if a member of a new part waits, perhaps indirectly, for one that waits for its adder."""
    left = [(run.part, n) for waits in part.sets for run in waits.parents if run.part for n in stored.numbers([run])]
    adder = stored.place_of(part.adder or "")
    left = [place for place in left if place != adder]
    if not left:
        return
    joined: dict[str, list[str]] = {}
    for link in engine.documents(stored.LINK, tenant, f"{part.flow}/"):
        _, who, added = link.name.split("/")
        joined.setdefault(who, []).append(added)
    graphs: dict[str, stored.Graph | None] = {}

    def graph_of(name: str) -> stored.Graph | None:
        if name not in graphs:
            document = engine.document(stored.PART, tenant, name)
            graphs[name] = None if document is None else stored.Graph(stored.read_part(document.value))
        return graphs[name]

    seen: set[stored.SetName] = set()
    looked_at = 0
    while left:
        name, number = left.pop()
        graph = graph_of(name)
        if graph is None or number not in graph.set_of or (name, graph.set_of[number]) in seen:
            continue
        found = stored.SetName(name, graph.set_of[number])
        seen.add(found)
        runs = graph.part.sets[found.number].parents
        parents = [(run.part or name, n) for run in runs for n in stored.numbers([run])]
        for who in [member(*parent) for parent in parents] if joined else ():
            for added in joined.get(who, ()) if who != graph.part.adder else ():
                other = graph_of(added)
                if other is not None and other.part.joins:
                    parents += [(added, n) for n in range(1, other.size + 1)]
        if adder in parents and graph.part.adder != part.adder:  # what it has added itself does not wait for more
            raise InvalidMessage(
                "a new member waits for one that waits for the running member, and so for the new ones",
                field="after", hint=_HINT,
            )  # fmt: skip
        looked_at += len(parents)
        if looked_at > _MOST_LOOKED_AT:
            raise InvalidMessage(
                "too many members come before those that the new ones wait for", field="after", hint=_HINT
            )
        left += [parent for parent in parents if parent != adder]
