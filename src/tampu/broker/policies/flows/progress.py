"""What follows from the ends of members, for the flows of one tenant: pure computation on documents.

`see` takes transitions in the order of the journal, `finish` says what is to be written. Nothing is kept between two
pages but graphs, which never change; so a page that is handed over again leads to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tampu.broker.policies.flows import stored
from tampu.broker.policies.flows.ids import member
from tampu.broker.policies.flows.stored import (
    BLOCKED,
    COLUMN,
    DONE,
    EXTRA,
    FAILURES,
    FLOW,
    OPEN,
    REMOVED,
    Chunk,
    Counts,
    Graph,
    Head,
    Run,
    SetName,
)
from tampu.engines.port import Document
from tampu.model.states import State

_MOST_MEMBERS = 500_000
"""Of all graphs that are kept in memory."""
_KEPT_BY_CANCEL = (stored.SKIPPED, stored.DROPPED)
_ENDED = frozenset((DONE, *FAILURES, stored.SKIPPED))


class Graphs:
    """Graphs that were read, the latest ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Graph] = {}
        self._members = 0

    def get(self, tenant: str, part: str, read: Callable[[], Document | None]) -> Graph | None:
        found = self._known.get((tenant, part))
        if found is None:
            document = read()
            if document is None:
                return None
            found = Graph(stored.read_part(document.value))
            while self._known and self._members + found.size > _MOST_MEMBERS:
                self._members -= self._known.pop(next(iter(self._known))).size
            self._known[tenant, part] = found
            self._members += found.size
        return found


class Source:
    """Documents of flows, as far as `Progress` reads them."""

    def document(self, kind: str, tenant: str, name: str) -> Document | None:
        raise NotImplementedError

    def documents(self, kind: str, tenant: str, prefix: str, limit: int | None = None) -> list[Document]:
        raise NotImplementedError


class Progress:
    def __init__(self, source: Source, tenant: str, graphs: Graphs) -> None:
        self._source = source
        self._tenant = tenant
        self._graphs = graphs
        self._chunks: dict[str, Chunk] = {}
        self._sets: dict[str, list[list[int]]] = {}
        self._counts: dict[str, Counts] = {}
        self._extras: dict[str, list[Run]] = {}
        self._cancelled: dict[str, bool] = {}
        self._grows: dict[str, bool] = {}
        self._dirty: dict[tuple[str, str], Any] = {}
        self._touched: dict[SetName, bool] = {}
        """Sets whose counts have changed: True if all parents had ended, and one is open again."""
        self._at_us = 0
        self.acts: dict[str, None] = {}
        """Members that may run now, or are to be cancelled."""
        self.ended: dict[str, None] = {}
        """Flows whose last member has ended for the first time."""

    # -- reading

    def graph(self, part: str) -> Graph | None:
        return self._graphs.get(self._tenant, part, lambda: self._source.document(stored.PART, self._tenant, part))

    def _known(self, part: str) -> Graph:
        found = self.graph(part)
        if found is None:
            raise LookupError(f"part {part} of a flow is gone")
        return found

    def _read(self, kind: str, name: str) -> bytes | None:
        found = self._source.document(kind, self._tenant, name)
        return None if found is None else found.value

    def _chunk(self, part: str, number: int) -> tuple[str, Chunk, int]:
        name, place = stored.chunk_name(part, number)
        chunk = self._chunks.get(name)
        if chunk is None:
            raw = self._read(stored.STATE, name)
            if raw is None:
                raise LookupError(f"{name} of a flow is gone")
            chunk = self._chunks[name] = stored.read_chunk(raw)
        return name, chunk, place

    def letter(self, part: str, number: int) -> str:
        _, chunk, place = self._chunk(part, number)
        return chunk.letters[place]

    def counts_of(self, name: SetName) -> list[int]:
        """[open, dead, gone, skipped] parents of a set."""
        document, place = stored.sets_name(name)
        found = self._sets.get(document)
        if found is None:
            raw = self._read(stored.WAIT, document)
            if raw is None:
                raise LookupError(f"{document} of a flow is gone")
            found = self._sets[document] = stored.read_sets(raw)
        return found[place]

    def _count(self, flow: str) -> Counts:
        found = self._counts.get(flow)
        if found is None:
            raw = self._read(stored.COUNT, flow)
            found = self._counts[flow] = Counts() if raw is None else stored.read_counts(raw)
        return found

    def is_cancelled(self, flow: str) -> bool:
        found = self._cancelled.get(flow)
        if found is None:
            raw = self._read(FLOW, flow)
            found = self._cancelled[flow] = raw is not None and bool(stored.read_head(raw).cancelled_us)
        return found

    def _links(self, flow: str, adder: str) -> Iterator[str]:
        """The parts that a member has added."""
        if flow not in self._grows:
            self._grows[flow] = bool(self._source.documents(stored.LINK, self._tenant, f"{flow}/", 1))
        if self._grows[flow]:
            for document in self._source.documents(stored.LINK, self._tenant, f"{flow}/{adder}/"):
                yield document.name.rpartition("/")[2]

    def enrolled(self, part: str) -> bool:
        name, _ = stored.chunk_name(part, 1)
        return name in self._chunks or self._read(stored.STATE, name) is not None

    def sets_with(self, part: str, number: int) -> list[SetName]:
        """The sets that have this member as a parent."""
        own = [SetName(part, index) for index in self._known(part).sets_of.get(number, ())]
        _, chunk, _ = self._chunk(part, number)
        return own + [SetName(*name) for name in chunk.outs.get(str(number), ())]

    # -- what happens

    def see(self, id: str, state: State | None, verb: str, at_us: int) -> None:
        """A transition of what may be a member."""
        part, number = stored.place_of(id)
        graph = self.graph(part)
        if graph is None or not 1 <= number <= graph.size:
            return
        if not self.enrolled(part):
            if self._read(stored.PART, part) is None:  # it was removed since it was read
                return
            self._enroll(part, graph)
        new = REMOVED if state is None else OPEN if verb == "replay" else stored.LETTER.get(state)
        if new is None:
            return
        for added in self._links(graph.flow, id) if new in _ENDED else ():
            found = self.graph(added)
            if found is not None and not self.enrolled(added):
                self._enroll(added, found)
        self._change(part, number, new)
        self._at_us = at_us

    def _enroll(self, part: str, graph: Graph) -> None:
        """Begin to keep the state of a part: all its members are open."""
        for start in range(0, graph.size, stored.CHUNK):
            document, _ = stored.chunk_name(part, start + 1)
            chunk = self._chunks[document] = Chunk(OPEN * min(stored.CHUNK, graph.size - start))
            self._dirty[stored.STATE, document] = chunk
        self._tally(graph.flow, OPEN, graph.size)
        for start in range(0, len(graph.part.sets), stored.SETS):
            document, _ = stored.sets_name(SetName(part, start))
            many = [[0, 0, 0, 0] for _ in graph.part.sets[start : start + stored.SETS]]
            self._sets[document] = self._dirty[stored.WAIT, document] = many
        for index, waits in enumerate(graph.part.sets):
            name = SetName(part, index)
            counts = self.counts_of(name)
            for run in waits.parents:
                if not run.part:
                    counts[0] += run.count
                    continue
                for number in range(run.first, run.first + run.count):
                    self._lead(run.part, number, name)
            self._touched.setdefault(name, False)
        if graph.part.joins and graph.part.adder is not None:
            above, adder = stored.place_of(graph.part.adder)
            if not self.enrolled(above):  # its transitions may be in another partition of the journal
                self._enroll(above, self._known(above))
            leaves = [number for number in range(1, graph.size + 1) if number not in graph.sets_of]
            for name in self.sets_with(above, adder):
                if self._known(name.part).part.adder == graph.part.adder:  # what it has added does not wait for itself
                    continue
                for number in leaves:
                    self._lead(part, number, name)
                runs = stored.runs_of((part, number) for number in leaves)
                self._extras[f"{name.part}/{name.number}/{part}"] = runs

    def _lead(self, part: str, number: int, name: SetName) -> None:
        """Make a member a parent of a set in another part, or of one that its own part does not know."""
        if not self.enrolled(part):
            self._enroll(part, self._known(part))
        document, chunk, place = self._chunk(part, number)
        letter = chunk.letters[place]
        if letter in FAILURES and not self.sets_with(part, number):
            self._count(self._known(part).flow).bad -= 1  # somebody waits for it now, and decides
        chunk.outs.setdefault(str(number), []).append((name.part, name.number))
        self._dirty[stored.STATE, document] = chunk
        if letter in COLUMN:
            self._moved(name, letter, 1)

    def _moved(self, name: SetName, letter: str, more: int) -> None:
        counts, reopened = self.counts_of(name), False
        if letter in COLUMN:
            counts[COLUMN[letter]] += more
            document, _ = stored.sets_name(name)
            self._dirty[stored.WAIT, document] = self._sets[document]
            reopened = letter == OPEN and more > 0 and counts[0] == more
        self._touched[name] = self._touched.get(name, False) or reopened

    def _tally(self, flow: str, letter: str, more: int) -> None:
        counts = self._count(flow)
        counts.letters[letter] = counts.letters.get(letter, 0) + more
        self._dirty[stored.COUNT, flow] = counts

    def _change(self, part: str, number: int, new: str) -> None:
        document, chunk, place = self._chunk(part, number)
        old = chunk.letters[place]
        if old == new or (new == REMOVED and old in _ENDED and old != stored.DEAD):
            return
        if new == stored.CANCELLED and old in _KEPT_BY_CANCEL:
            return
        chunk.letters = chunk.letters[:place] + new + chunk.letters[place + 1 :]
        self._dirty[stored.STATE, document] = chunk
        flow = self._known(part).flow
        self._tally(flow, old, -1)
        self._tally(flow, new, 1)
        sets = self.sets_with(part, number)
        self._count(flow).bad += _is_bad(new, leaf=not sets) - _is_bad(old, leaf=not sets)
        for name in sets:
            self._moved(name, old, -1)
            self._moved(name, new, 1)

    def _decide(self) -> None:
        """Decide about those that wait for sets whose counts have changed; that may change others."""
        while self._touched:
            name = next(iter(self._touched))
            reopened = self._touched.pop(name)
            counts, graph = self.counts_of(name), self._known(name.part)
            if counts[0] and not reopened:
                continue
            for number in stored.numbers(graph.part.sets[name.number].waiters):
                if self.letter(name.part, number) not in (OPEN, BLOCKED):
                    continue
                found = OPEN
                if not counts[0]:
                    found = stored.verdict(counts, graph.policy(number), cancelled=self.is_cancelled(graph.flow))
                    if found != BLOCKED:
                        self.acts[member(name.part, number)] = None
                self._change(name.part, number, found)

    def _end(self) -> None:
        for flow, counts in self._counts.items():
            ended = not counts.letters.get(OPEN, 0)
            if bool(counts.ended_us) != ended and (stored.COUNT, flow) in self._dirty:
                counts.ended_us = self._at_us if ended else 0
                if ended and not counts.forgets:
                    counts.forgets = True
                    self.ended[flow] = None

    def finish(self) -> Iterator[tuple[str, str, Any]]:
        """Decide what follows. Yields (kind, name, value) of the documents to write."""
        self._decide()
        self._end()
        for (kind, name), value in self._dirty.items():
            yield kind, name, value
        for name, runs in self._extras.items():
            yield EXTRA, name, runs

    # -- carrying it out

    def decided(self, id: str) -> tuple[Head | None, Graph, int, str] | None:
        """(its flow, the graph of its part, its number, what becomes of it) for a member; None if it is not decided."""
        part, number = stored.place_of(id)
        graph = self.graph(part)
        if graph is None or number not in graph.set_of or not self.enrolled(part):
            return None
        counts = self.counts_of(SetName(part, graph.set_of[number]))
        if counts[0]:
            return None
        raw = self._read(FLOW, graph.flow)
        head = None if raw is None else stored.read_head(raw)
        cancelled = head is None or bool(head.cancelled_us)
        return head, graph, number, stored.verdict(counts, graph.policy(number), cancelled=cancelled)

    def parents(self, graph: Graph, part: str, number: int) -> Iterator[tuple[str, str]]:
        """(id, letter) of the parents of a member, in their order; those that were added later come last."""
        index = graph.set_of[number]
        extra = self._source.documents(EXTRA, self._tenant, f"{part}/{index}/")
        added = [run for document in extra for run in stored.read_runs(document.value)]
        for run in (*graph.part.sets[index].parents, *added):
            for one in range(run.first, run.first + run.count):
                yield member(run.part or part, one), self.letter(run.part or part, one)


def _is_bad(letter: str, *, leaf: bool) -> bool:
    return letter == BLOCKED or (leaf and letter in FAILURES)
