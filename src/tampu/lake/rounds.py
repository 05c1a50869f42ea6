"""The steps of one round: each brings its tables from where they are to where the journal was when the round began."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake import bronze, reopened, sheets, silver, walking
from tampu.lake.files import DataFile
from tampu.lake.hands import Hands, listed, written
from tampu.lake.sheets import Sorted, Target
from tampu.lake.silver import Source, within
from tampu.lake.snapshots import Mark, Rewritten, Snapshot, exactly
from tampu.lake.state import CARRIED, EVENTS, MESSAGES, SILVER, WAITING, State
from tampu.model.errors import VersionConflict
from tampu.model.journal import Position

_SLICES = 32
_TRIES = 5

Step = Callable[[str], None]


class Round:
    """The steps of one round. Each brings its tables from where they are to ``target``, or finds that they are."""

    def __init__(self, hands: Hands, url: str, here: State, run: int, on_step: Step) -> None:
        self.hands = hands
        self.here = here
        self.run = run
        self.tag = f"r{run}"
        self.rows: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.on_step = on_step
        self._url = url
        self._label = f"{here.reader.partition(':')[2]}-{run}"

    def mark(self, position: Position) -> Mark:
        return Mark(self.here.reader, self.run, position)

    def table(self, name: str) -> Snapshot:
        return self.here.tables[name]

    def done(self, name: str, new: Sequence[DataFile], began: float) -> None:
        self.rows[name] = self.rows.get(name, 0) + sum(file.rows for file in new)
        self.took(name, began)
        self.here.refresh(name)
        self.on_step(name)

    def took(self, step: str, began: float) -> None:
        self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - began

    # -- bronze

    def events(self, after: Position, target: Position) -> None:
        if self.here.position(EVENTS) == target:
            return
        began = time.monotonic()
        self.on_step("reading")
        parts = bronze.slices(after, target, _SLICES)
        sizes = [part.upto - part.after for part in parts]
        url, label = self._url, self._label

        def act(part: bronze.Slice) -> Sorted:
            return ((EVENTS, batch) for batch in bronze.read_slice(url, part, label))

        new = self._write(EVENTS, parts, act, sizes, sum(sizes))
        self.on_step("written")
        self.table(EVENTS).commit(new, self.mark(target))
        self.done(EVENTS, new, began)

    def _write(
        self, name: str, parts: Sequence[Any], act: Callable[[Any], Sorted], sizes: Sequence[int], rows: int
    ) -> list[DataFile]:
        target = self.table(name).table.target
        return self.hands.write(parts, act, sizes, rows, [target], self.tag)[name]

    def messages(self, target: Position) -> None:
        have = self.here.position(MESSAGES)
        if have == target:
            return
        began = time.monotonic()
        events = self.table(EVENTS)
        chosen = events.files(after=have)
        place, url, label = events.table.place, self._url, self._label
        again = reopened.told_again(events, have, target)

        def act(file: DataFile) -> Sorted:
            batches = sheets.read_batches(place, walking.CARRIED, [file])
            ends = bronze.ends((within(batch, have, target) for batch in batches), again)
            return ((MESSAGES, rows) for rows in bronze.ended_messages(url, ends, label))

        sizes = [file.rows for file in chosen]
        new = self._write(MESSAGES, [file.bare() for file in chosen], act, sizes, sum(sizes))
        self.table(MESSAGES).commit(new, self.mark(target))
        self.done(MESSAGES, new, began)

    # -- silver

    def silver(self, target: Position) -> None:
        """Its tables move together; carried moves last. If a run died among them, some are where it wanted to go: the
        others follow exactly there first."""
        while (have := self.here.position(CARRIED)) != target:
            begun = self.here.most(SILVER)
            self._silver(have, begun if begun != have else target)

    def _silver(self, have: Position, target: Position) -> None:
        began = time.monotonic()
        sources = [
            *self.sources(EVENTS, "new", after=have, upto=target),
            *self.sources(MESSAGES, "bodies", after=have, upto=target),
            *self.sources(CARRIED, "old"),
            *self._earlier(have, target),
        ]
        behind = [name for name in SILVER if self.here.position(name) != target]
        # Rows that are to go are written down beside silver.messages, in files that never count.
        messages = self.table("silver.messages").table.target
        replaced = Target(silver.REPLACED, messages.place, walking.REPLACED, True)
        found = self.walked(sources, self.rows_by_tenant(have), [*self.targets(behind), replaced])
        self.took("silver.walk", began)
        self.on_step("walked")
        for name in behind:
            began = time.monotonic()
            files, table, mark = found[name], self.table(name), self.mark(target)
            if name == "silver.messages":
                files = self._commit_messages(files, found[silver.REPLACED], mark)
            elif name in (CARRIED, WAITING):
                table.overwrite(files, mark)
            else:
                table.commit(files, mark)
            self.done(name, files, began)

    def targets(self, names: Sequence[str]) -> list[Target]:
        return [self.table(name).table.target for name in names]

    def sources(
        self,
        name: str,
        kind: str,
        *,
        after: Position | None = None,
        upto: Position | None = None,
        ids: DataFile | None = None,
    ) -> list[tuple[Source, int]]:
        """Data files to walk over, with their rows."""
        table = self.table(name)
        place = table.table.place
        return [
            (Source(place, file.bare(), kind, after or {}, upto, ids), file.rows) for file in table.files(after=after)
        ]

    def walked(
        self,
        sources: Sequence[tuple[Source, int]],
        rows: dict[str, int],
        targets: Sequence[Target],
        days: Sequence[Any] | None = None,
    ) -> dict[str, list[DataFile]]:
        """The files of silver's tables that come of these sources."""
        tag, wanted = self.tag, [target.name for target in targets]

        def act(told: pa.Table) -> Iterator[str]:
            return written(targets, tag, silver.sorted_out(told, wanted, days))

        parts, sizes = [source for source, _ in sources], [size for _, size in sources]
        told = self.hands.gathered(
            parts, silver.read, sizes, sum(rows.values()), walking.TOLD, silver.spread(rows), act
        )
        return listed(targets, told)

    def rows_by_tenant(self, have: Position) -> dict[str, int]:
        """About how many rows silver has to walk over that are past a position."""
        counts: Counter[str] = Counter()
        for name in (EVENTS, MESSAGES):
            for file in self.table(name).files(after=have):
                counts[file.tenant or ""] += file.rows
        carried = self.table(CARRIED)
        for tenants in carried.peeked(["tenant"], carried.files()):
            for found in pc.value_counts(tenants.column(0)).to_pylist():
                counts[found["values"]] += found["counts"]
        return dict(counts)

    def _earlier(self, have: Position, target: Position) -> list[tuple[Source, int]]:
        """The events so far of messages that had ended: they come back from the dead, or from another store."""
        ids = reopened.ended_before(self.table(EVENTS), have, target)
        if not any(have.values()) or not ids.num_rows:
            return []
        # Too many to travel with every task: a file beside the events, which never counts.
        place = self.table(EVENTS).table.place
        named = Target("_state.returning", place, reopened.WHO, False)
        (file,) = sheets.write_batches(named, self.tag, [ids])
        return self.sources(EVENTS, "returning", upto=have, ids=file.bare())

    def _commit_messages(self, new: list[DataFile], gone: list[DataFile], mark: Mark) -> list[DataFile]:
        """The rows of messages that were replayed go with the same commit; again, where their files were joined."""
        for _ in range(_TRIES):
            table = self.table("silver.messages")
            rest, stale = self._without(table, gone)
            try:
                table.commit([*new, *rest], mark, drop=exactly(file.path for file in stale))
            except Rewritten:
                self.here.tables["silver.messages"] = table.unmoved(mark)
                continue
            return [*new, *rest]
        raise VersionConflict("silver.messages is rewritten all the time", hint="run it again later")

    def _without(self, table: Snapshot, gone: list[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
        """Files that hold rows which are to go, written anew without them; and those files."""
        ends: dict[tuple[str | None, str | None], list[DataFile]] = {}
        for file in gone:
            ends.setdefault((file.day, file.tenant), []).append(file.bare())
        chosen = [file for file in table.files() if (file.day, file.tenant) in ends]
        parts = [(file.bare(), ends[file.day, file.tenant]) for file in chosen]
        sizes = [file.rows for file in chosen]
        target, tag = table.table.target, self.tag

        def act(part: tuple[DataFile, list[DataFile]]) -> Iterator[str]:
            file, named = part
            key = pa.schema([walking.REPLACED.field("id"), walking.REPLACED.field("ended_at")])
            ends = pa.Table.from_batches(sheets.read_batches(target.place, key, named), key)
            rows = pa.Table.from_batches(sheets.read_batches(target.place, target.schema, [file]), target.schema)
            rest = rows.join(ends, ["id", "ended_at"], join_type="left anti")
            if rest.num_rows < rows.num_rows:
                yield msgspec.json.encode(("stale", file)).decode()
                yield from written([target], tag, [(target.name, rest.select(target.schema.names))])

        stale = Target("stale", target.place, target.schema, True)
        found = listed([target, stale], self.hands.each(parts, act, sizes, sum(sizes)))
        return found[target.name], found["stale"]
