"""Tables that users add to the lake: named in `tampu.toml`, or registered by an installed package, for those who write
it; and by the lake for those who read.

A table's columns are those of the first frame that its function gives. They are kept in the table itself, as its key
is; the lineage has the names of all of them.
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Collection, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from tampu.import_string import import_string
from tampu.lake import lineage
from tampu.lake.state import EVENTS, READER, STORE, State
from tampu.lake.storage.lake import EXPECT, KEY, OWN, Lake
from tampu.lake.storage.snapshots import VERSION
from tampu.lake.tables.schema import NAME, OURS, PARTITION_BY, Table
from tampu.model.errors import InvalidConfig
from tampu.model.journal import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("tampu.pipeline")
FILE = "tampu.toml"
GROUP = "tampu.lake_tables"
"""Entry points of installed packages, each a table."""


class Loaded(NamedTuple):
    tables: list[Table]
    failed: dict[str, str]
    """Entry points that gave no table, and why."""


def load(file: str | Path = FILE) -> Loaded:
    """The tables of installed packages, and then those of the file, which may read them. What is wrong with one of a
    package stops only that one; with one of the file, which is the user's own, everything."""
    own = configured(file)
    known: dict[str, Table] = {table.name: table for table in own}
    tables: list[Table] = []
    failed: dict[str, str] = {}
    for entry in metadata.entry_points(group=GROUP):
        try:
            (table,) = checked([entry.load()])
            if known.setdefault(table.name, table) is not table:
                raise InvalidConfig(f"another table is called {table.name}", field="tables")
            if table not in [*own, *tables]:
                tables.append(table)
        except Exception as error:  # whatever a package raises when it is imported
            failed[entry.name] = reason(error)
            log.warning("the table %s of %s is left out: %s", entry.name, entry.value, failed[entry.name])
    return Loaded([*tables, *own], failed)


def reason(error: Exception) -> str:
    """Why a table was not built, in a line."""
    said = (str(error).strip() or "no reason given").splitlines()[0][:300]
    return f"{type(error).__name__}: {said}"


def configured(file: str | Path = FILE) -> list[Table]:
    """The tables of ``[lake] tables = ["module:name"]``, if there is such a file."""
    path = Path(file)
    if not path.is_file():
        return []
    try:
        lake = tomllib.loads(path.read_text(encoding="utf-8")).get("lake", {})
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}", field="lake") from None
    if not isinstance(lake, dict) or lake.keys() - {"tables"} or not isinstance(lake.get("tables", []), list):
        raise InvalidConfig(f"{path}: [lake] has something else than tables", field="lake", hint='tables = ["m:name"]')
    return checked([_loaded(str(text)) for text in lake.get("tables", [])])


def _loaded(text: str) -> Any:
    try:
        return import_string(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfig(
            f"the table {text!r:.80} cannot be loaded: {error}", field="tables", hint='as in "shop.lake:orders_per_day"'
        ) from error


def checked(tables: Sequence[Any]) -> list[Table]:
    """The tables, if each has a name of its own in a layer of its own."""
    for at, table in enumerate(tables):
        if not isinstance(table, Table):
            raise InvalidConfig(f"{table!r:.80} is no table", field="tables", hint="decorate it with @table(…)")
        if not NAME.fullmatch(table.name) or table.name.partition(".")[0] in OURS:
            raise InvalidConfig(
                f"a table cannot be called {table.name!r:.80}",
                field="tables",
                hint=f"layer.table in small letters, and not in {', '.join(OURS)}",
            )
        if table.name in [other.name for other in tables[:at]]:
            raise InvalidConfig(f"two tables are called {table.name}", field="tables")
    return list(tables)


def behind(lake: Lake, tables: Collection[Table], reader: str, latest: Position) -> list[str]:
    """Those that are not at the end, or not of the version that their function has."""
    found = {table.name: lake.table(table).find() for table in tables}
    return [
        table.name
        for table in tables
        if (at := found[table.name]) is None
        or at.schema_version() != table.version
        or at.position(reader, latest) != latest
    ]


def position(here: State, table: Table) -> Position:
    """How far the table has come. One that is new, or whose function is, begins at the beginning."""
    found = here.lake.table(table).find()
    if found is None or found.schema_version() < table.version:
        return dict.fromkeys(here.partitions, 0)
    found.check_version()
    spec = msgspec.structs.replace(table, schema=found.arrow_schema())
    here.tables[table.name] = here.lake.table(spec).open()
    return here.position(table.name)


def open_table(here: State, table: Table, rows: DataFrame) -> None:
    """Open the table for these rows; made, or given its new columns, where needed."""
    schema = _columns(table, rows)
    found = here.lake.table(table).find()
    if found is not None:
        known = found.arrow_schema()
        changed = [f.name for f in known if f.name not in schema.names or schema.field(f.name).type != f.type]
        added = [f for f in schema if f.name not in known.names]
        if changed or (added and found.schema_version() == table.version):
            raise InvalidConfig(
                f"{table.name} gives other columns than before: {', '.join([*changed, *(f.name for f in added)])}",
                field="tables",
                hint="raise its version to add columns; give it another name to change or drop them",
            )
        schema = pa.schema([*known, *added])
    properties = {name: here.tables[EVENTS].property(name) or "" for name in (READER, STORE)} | _properties(table)
    # A table that is there gets its new version with `note_version`, when the rows are: not if the run dies before.
    version = table.version if found is None else found.schema_version()
    place = here.lake.table(msgspec.structs.replace(table, schema=schema, version=version))
    here.tables[table.name] = place.create(properties).add_columns(schema)
    named = here.lake.own_names()
    if table.name not in named:
        lineage.table(here.lake).create().set_properties({OWN: json.dumps([*named, table.name])})


def note_version(here: State, table: Table) -> None:
    """The rows are of this version of the function."""
    found, wanted = here.tables[table.name], {VERSION: str(table.version), **_properties(table)}
    changed = {name: value for name, value in wanted.items() if found.property(name) != value}
    if changed:
        here.tables[table.name] = found.set_properties(changed)


def _properties(table: Table) -> dict[str, str]:
    return {KEY: json.dumps(table.key), EXPECT: json.dumps(table.expect)}


def _columns(table: Table, rows: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = {*PARTITION_BY, *table.key}
    lacking = sorted(wanted - set(rows.columns))
    if lacking:
        raise InvalidConfig(f"the rows of {table.name} have no {', '.join(lacking)}", field="tables")
    for field in rows.schema:
        if field.dataType.typeName() == "variant":
            raise InvalidConfig(
                f"{field.name} of {table.name} is a VARIANT", field="tables", hint="cast it, or to_json(…) it"
            )
    schema: pa.Schema = to_arrow_schema(rows.schema, timezone="UTC")
    if schema.field("day").type != pa.date32() or schema.field("tenant").type != pa.string():
        raise InvalidConfig(f"day of {table.name} must be a DATE and tenant a STRING", field="tables")
    return pa.schema([field.with_nullable(True) for field in schema])
