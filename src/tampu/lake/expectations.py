"""What must hold of the rows of a table: conditions, unique keys, and ends that agree among tables.

A run checks the rows that it wrote before it commits them (`Watch`), while they are on their way into files. `check`
looks at all rows of a lake, without Spark. Conditions are SQL that Spark and DuckDB both know; null breaks none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.storage.files import DataFile
from tampu.lake.storage.snapshots import Snapshot
from tampu.lake.tables import Table
from tampu.lake.tables.words import ENDS
from tampu.model.errors import InvalidMessage, InvalidState
from tampu.model.journal import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tampu.lake.query import Lake, Questions

log = logging.getLogger("tampu.pipeline")
Counts = dict[str, dict[str, int]]
"""By table and expectation: how many rows break it."""
UNIQUE, AGREE, WHOLE = "the key is unique", "ends agree", "each transition of the journal is there"
FEW = 250_000
"""Rows up to which a run checks that keys are unique, which the driver does; `check` does it for all."""
_ENDED = "_ended"
_REMEDY = "nothing was committed; if you must go on: --no-checks. Of a table of tampu's: please report it"


class Watch:
    """The tables that one job writes."""

    def __init__(self, tables: Mapping[str, Snapshot]) -> None:
        self._tables = tables
        self._seen: dict[str, Any] = {}

    def over(self, name: str, rows: DataFrame) -> DataFrame:
        """The same rows, counted on their way."""
        from pyspark.sql import Observation
        from pyspark.sql.functions import expr

        spec = self._tables[name].table.spec
        counts = [expr(f"count_if(NOT ({condition}))").alias(what) for what, condition in spec.expect.items()]
        if spec.ended is not None:
            counts.append(expr(f"coalesce(sum({spec.ended}), 0L)").alias(_ENDED))
        if not counts:
            return rows
        self._seen[name] = Observation()
        return rows.observe(self._seen[name], *counts)

    def broken(self, written: Mapping[str, Sequence[DataFile]]) -> Counts:
        """What was counted, when the job has written these files."""
        found: Counts = {name: dict(seen.get) for name, seen in self._seen.items()}
        ended = {name: counts.pop(_ENDED) for name, counts in found.items() if _ENDED in counts}
        for name, files in written.items():
            table = self._tables[name]
            # Facts add up, however often a key is there.
            if table.table.spec.unique and not name.startswith("_") and sum(file.rows for file in files) <= FEW:
                found.setdefault(name, {})[UNIQUE] = _repeated(table, files)
        for name, count in ended.items():
            found[name][AGREE] = abs(count - ended[next(iter(ended))])
        return found


def _repeated(table: Snapshot, files: Sequence[DataFile]) -> int:
    """How many keys there are more than once."""
    key = _key(table.table.spec)
    batches = list(table.peeked(key, files))
    if not batches:
        return 0
    counts = pa.Table.from_batches(batches).group_by(key).aggregate([([], "count_all")])["count_all"]
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)


def _key(table: Table) -> list[str]:
    return list(dict.fromkeys(["tenant", *table.key]))


def hold(found: Counts, *, strict: bool) -> None:
    """Refuse what breaks an expectation; or only say so."""
    for table, counts in found.items():
        for what, count in counts.items():
            if count:
                message = f"{table}: {count:,} break the expectation that {what}"
                if strict:
                    raise InvalidState(message, field=table, hint=_REMEDY)
                log.warning("%s", message)


def whole(new: Iterable[DataFile], after: Position, target: Position) -> Counts:
    """bronze.events has as many new rows as there are transitions between two positions."""
    expected = sum(end - after.get(p, 0) for p, end in target.items())
    return {"bronze.events": {WHOLE: abs(sum(file.rows for file in new) - expected)}}


# -- all rows of a lake


class Checked(msgspec.Struct, frozen=True):
    table: str
    expectation: str
    broken: int | None
    """None: DuckDB could not tell, for the reason in ``note``."""
    note: str = ""


def check(lake: Lake, first: Position | None = None) -> list[Checked]:
    """Every expectation of every table over all rows. ``first`` is where the journal of the store begins now: what is
    after it can be counted."""
    ends = f"(SELECT * FROM bronze.events WHERE state IN ({ENDS}) AND verb <> 'adopt')"
    known = 'ANTI JOIN bronze.messages m ON m.ended_partition = e.partition AND m.ended_offset = e."offset"'
    asked = [(table.name, what, sql) for table in lake.tables for what, sql in _questions(table)]
    asked += [
        (t.name, AGREE, f"SELECT abs((SELECT count(*) FROM {ends}) - coalesce(sum({t.ended}), 0)) FROM {t.name}")
        for t in lake.tables
        if t.ended
    ]
    asked.append(("bronze.messages", "each end has its message", f"SELECT count(*) FROM {ends} e {known}"))
    span = 'SELECT abs(count(*) - coalesce(max("offset") - min("offset") + 1, 0)) FROM bronze.events'
    where = 'WHERE partition = $p AND "offset" > $begin'
    with lake.ask() as ask:
        found = [_asked(ask, *question) for question in asked]
        for p, begin in (first or {}).items():
            found.append(_asked(ask, "bronze.events", WHOLE, f"{span} {where}", {"p": p, "begin": begin}))
    return found


def _questions(table: Table) -> list[tuple[str, str]]:
    asked = [(what, f"SELECT count(*) FROM {table.name} WHERE NOT ({sql})") for what, sql in table.expect.items()]
    if table.unique:
        key = ", ".join(f'"{name}"' for name in _key(table))
        again = f"SELECT 1 FROM {table.name} GROUP BY {key} HAVING count(*) > 1"
        asked.append((UNIQUE, f"SELECT count(*) FROM ({again})"))
    return asked


def _asked(ask: Questions, table: str, what: str, sql: str, parameters: dict[str, Any] | None = None) -> Checked:
    try:
        (row,) = ask.run(sql, parameters or {}).fetchall()
    except InvalidMessage as error:  # a condition of the user's, in words that only Spark knows
        return Checked(table, what, None, error.message)
    return Checked(table, what, int(row[0]))
