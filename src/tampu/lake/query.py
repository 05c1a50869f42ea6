"""Reading the lake without Spark: its Delta tables as DuckDB views, and nothing else within reach.

Everything that acts on the lake (`tampu sql`, `export`, `insights`, replay) reads it through here. A connection sees
the tables of the contract in the schemas `bronze`, `silver` and `gold`, users' tables in theirs, and `_lineage` unless
it is of one tenant; it cannot open files, load extensions or change its own settings, so that a query from elsewhere
can do no more than read.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tampu.lake import storage
from tampu.lake.storage.error_text import first_line
from tampu.lake.tables import BY_NAME, LINEAGE, TABLES, Table, payloads
from tampu.lake.tables.schema import OURS
from tampu.model.errors import InvalidMessage, NotFound, StorageError

if TYPE_CHECKING:
    import duckdb

_FILE_FAILED = "reading the stream registered as"
"""How DuckDB begins to tell that the Arrow dataset under a view failed."""
_MADE_BY = "make it with: tampu pipeline run --once"


class Lake:
    """The tables of a lake as they stand now. Each is looked up once, so all answers are of the same moment."""

    def __init__(self, path: str | os.PathLike[str], *, storage_options: dict[str, str] | None = None) -> None:
        self.path = os.fspath(path)
        self._lake = storage.Lake(self.path, storage_options, travels=False)
        self._found: dict[str, ds.Dataset | None] = {}
        if self._lake.local is not None and not self._lake.local.is_dir():
            raise NotFound(f"there is no lake in {self.path}", field="lake", hint=f"{_MADE_BY}; or name it with --lake")

    @functools.cached_property
    def own(self) -> dict[str, Table]:
        """The tables that users added."""
        return self._lake.own_tables()

    @property
    def tables(self) -> list[Table]:
        return [*TABLES, *self.own.values()]

    def _dataset(self, table: Table) -> ds.Dataset | None:
        """The rows of a table; None when the pipeline has not made it yet."""
        from deltalake.exceptions import DeltaError

        if table.name not in self._found:
            try:
                found = self._lake.table(table).find()
                self._found[table.name] = None if found is None else _in_columns(found.arrow(), table.schema)
            except (DeltaError, OSError) as error:
                raise StorageError(
                    f"{table.name} cannot be read: {first_line(error)}", hint="see tampu pipeline status"
                ) from error
        return self._found[table.name]

    def connect(self, *, tenant: str | None = None) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection that sees the tables, all or those rows of one tenant, and nothing besides."""
        import duckdb

        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        found = 0
        for layer in dict.fromkeys([*OURS, *(name.partition(".")[0] for name in self.own)]):
            connection.execute(f"CREATE SCHEMA {layer}")
        for table in self.tables if tenant is not None else (*self.tables, LINEAGE):  # runs are of all tenants
            rows = self._dataset(table)
            if rows is not None:
                found += 1
                # By the partition, so that files of other tenants are not even opened.
                rows = rows if tenant is None else rows.filter(pc.field("tenant") == tenant)
            handle = f"{table.name.replace('.', '__')}__files"
            connection.register(handle, table.schema.empty_table() if rows is None else rows)
            connection.execute(f"CREATE VIEW {table.name} AS FROM {handle}")
        payloads.create_view(connection)
        if not found and self._lake.local is None:
            connection.close()
            raise NotFound(f"there is no lake in {self.path}", field="lake", hint=_MADE_BY)
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        return connection

    def ask(self, *, tenant: str | None = None) -> Questions:
        """Questions in SQL, in a ``with`` block."""
        return Questions(self.connect(tenant=tenant))


class Questions:
    """A connection that answers with plain rows, and with errors that fit in a line."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.connection.close()

    def run(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> duckdb.DuckDBPyConnection:
        """Start a query of ours; read its answer with ``fetchmany``."""
        import duckdb

        try:
            return self.connection.execute(sql, parameters)
        except duckdb.Error as error:
            raise as_error(error) from None

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[dict[str, Any]]:
        """All rows, by the names of their columns; for answers that are known to be small."""
        answer = self.run(sql, parameters)
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in fetched(answer)]

    def one(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> dict[str, Any]:
        return self.rows(sql, parameters)[0]

    def read(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Start a query of the user's: one statement, and one that only reads."""
        return self.run(checked(self.connection, sql))


def fetched(answer: duckdb.DuckDBPyConnection, at_once: int = 10_000) -> Iterator[tuple[Any, ...]]:
    """The rows of an answer, some at a time; an error half way is reported like one at the start."""
    import duckdb

    while True:
        try:
            rows = answer.fetchmany(at_once)
        except duckdb.Error as error:
            raise as_error(error) from None
        if not rows:
            return
        yield from rows


def checked(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The query, if it is one statement that only reads."""
    import duckdb

    found = explained = _one_statement(connection, sql)
    if found.type == duckdb.StatementType.EXPLAIN:  # EXPLAIN ANALYZE runs its statement, which must only read too
        explained = _one_statement(connection, _EXPLAIN.sub("", found.query, count=1))
    if explained.type != duckdb.StatementType.SELECT:
        kind = explained.type.name
        raise InvalidMessage(
            f"{kind} is not allowed: the lake is only read here", field="sql", hint="SELECT, DESCRIBE, SHOW or EXPLAIN"
        )
    return str(found.query)


_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?(\([^()]*\)\s*)?", re.IGNORECASE)


def _one_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    import duckdb

    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise as_error(error) from None
    if len(statements) != 1:
        raise InvalidMessage(f"{len(statements)} statements; give one", field="sql", hint='"SELECT …"')
    return statements[0]


def checked_condition(sql: str) -> str:
    """A condition of a WHERE, if it is one expression and no more."""
    import duckdb

    try:
        duckdb.SQLExpression(sql)
    except duckdb.Error as error:
        raise as_error(error, "where") from None
    return sql


def as_error(error: Exception, field: str = "sql") -> InvalidMessage | StorageError:
    """An error of DuckDB's as one of ours, in one line, with its cure."""
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return StorageError("the query needs more memory than there is", hint="ask for fewer days or columns")
    broken = isinstance(error, duckdb.OperationalError | duckdb.InternalError | OSError)
    if broken or _FILE_FAILED in str(error):
        return StorageError(
            f"the lake cannot be read: {first_line(error)}",
            hint="if it was vacuumed meanwhile, ask again; else see tampu pipeline status",
        )
    hint = f'the tables are {", ".join(BY_NAME)}; the names "at", "group" and "offset" need the quotes'
    return InvalidMessage(first_line(error), field=field, hint=hint)


def _in_columns(dataset: ds.Dataset, contract: pa.Schema) -> ds.Dataset:
    """The columns of the contract; those that an older lake does not have yet are null, newer ones come last."""
    there = dataset.schema
    known = [there.field(field.name) if field.name in there.names else field for field in contract]
    return dataset.replace_schema(pa.schema([*known, *(field for field in there if field.name not in contract.names)]))
