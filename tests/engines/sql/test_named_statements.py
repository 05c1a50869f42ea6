"""Files of named statements: what is refused when they are read, and that Python and SQL agree about the names."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu
from tampu.engines.mariadb.ops import OPERATIONS
from tampu.engines.sql.named_statements import load, parse
from tampu.engines.sqlite import operations as sqlite_operations

SOURCE = Path(tampu.__file__).parent
SENDS = {"rows", "row", "value", "send", "ahead", "submit", "whole"}
"""Methods of a connection whose first argument is the name of a statement."""
HEADER = "-- name: one\n-- Does it.\n-- Run by: publish\n-- In:  nothing\n-- Out: nothing\n"


def test_a_statement_is_read_without_its_header() -> None:
    text = f"-- About the file.\n\n{HEADER}SELECT 1;\nSELECT 2\n\n{HEADER.replace('one', 'two')}-- more\nSELECT 3\n"
    assert parse([("a.sql", text)]) == {"one": "SELECT 1;\nSELECT 2", "two": "SELECT 3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADER}SELECT 1\n{HEADER}SELECT 2\n", "two statements named one"),
        (f"SELECT 0\n{HEADER}SELECT 1\n", "SQL before the first"),
        (f"{HEADER}\n\n{HEADER.replace('one', 'two')}SELECT 1\n", "one has no statement"),
        (HEADER, "one has no statement"),
        (f"{HEADER.replace('-- In:  nothing', '-- In:  ')}SELECT 1\n", "'-- In:'"),
        (f"{HEADER.replace('-- Out: nothing', '')}SELECT 1\n", "'-- Out:'"),
        (f"{HEADER.replace('-- Run by: publish', '-- By: publish')}SELECT 1\n", "'-- Run by:'"),
        (f"{HEADER.replace('one', 'One')}SELECT 1\n", "not `-- name: `"),
    ],
    ids=["twice", "no name", "empty", "empty at the end", "no In", "no Out", "no Run by", "bad name"],
)
def test_a_file_that_is_not_in_order_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse([("a.sql", text)])


def test_a_name_may_not_be_in_two_files() -> None:
    with pytest.raises(ValueError, match=r"b\.sql: there are two statements named one"):
        parse([("a.sql", f"{HEADER}SELECT 1\n"), ("b.sql", f"{HEADER}SELECT 1\n")])


def _trees(*folders: str, about: str = "") -> Iterator[ast.AST]:
    """The modules of these folders of the package, of all if none is named; only those that mention something."""
    for folder in folders or [""]:
        for file in sorted((SOURCE / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if about in text:
                yield ast.parse(text)


def _asked_for(trees: Iterator[ast.AST]) -> set[str]:
    """Names of statements that are given to a connection, where they are written out."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if (
            isinstance(node, ast.Call)
            and (
                (isinstance(node.func, ast.Attribute) and node.func.attr in SENDS)
                or (isinstance(node.func, ast.Name) and node.func.id == "sql_of")
            )
            and node.args
        ):
            given = node.args[0]
            choices = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
            found |= {one.value for one in choices if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found


@pytest.mark.parametrize(("engine", "operations"), [("postgres", set()), ("mariadb", set(OPERATIONS))])
def test_every_statement_that_is_asked_for_exists(engine: str, operations: set[str]) -> None:
    known = {*load(f"tampu.engines.{engine}"), *operations}
    asked = _asked_for(_trees("engines/sql", f"engines/{engine}"))
    assert len(asked) > 80
    assert asked <= known, f"no such statement: {sorted(asked - known)}"


def test_every_statement_that_is_asked_for_outside_of_the_engines_exists() -> None:
    known = {
        *load("tampu.engines.postgres"),
        *load("tampu.engines.mariadb"),
        *load("tampu.engines.sqlite"),
        *OPERATIONS,
    }
    asked = _asked_for(_trees(about="tampu.engines.sql.db"))
    assert "snapshot_live" in asked
    assert asked <= known, f"no such statement: {sorted(asked - known)}"


SERVERS = {
    "ack_in_one_statement", "acquire_leader", "acquire_locks", "allocate_numbers", "claim_in_one_statement",
    "current_leader", "delete_settled_claims", "fold_counts", "has_unnumbered", "insert_loaded",
    "join_user_transaction",
    "publish_simple", "publish_without_lookup", "release_leader", "select_server_time", "try_acquire_locks",
    "write_commit",
}  # fmt: skip
"""Statements that only engines with several writers, or a process of their own, ask for."""


READERS = ("journal.py", "rows.py", "snapshot.py", "sqlite.py", "store.py")
"""Modules that read a file for Spark; the others of their folder are for servers."""


def test_every_statement_that_is_asked_of_a_file_exists() -> None:
    known = {*load("tampu.engines.sqlite"), *sqlite_operations.OPERATIONS}
    readers = [ast.parse((SOURCE / "stores/sql" / name).read_text(encoding="utf-8")) for name in READERS]
    asked = _asked_for(itertools.chain(_trees("engines/sql", "engines/sqlite"), readers)) - SERVERS
    assert len(asked) > 80
    assert asked <= known, f"no such statement: {sorted(asked - known)}"
    assert not set(sqlite_operations.OPERATIONS) - asked - {"page_ready"}, "nobody asks for it by name"


@pytest.mark.parametrize("engine", ["postgres", "mariadb", "sqlite"])
def test_every_statement_is_used(engine: str) -> None:
    assert not set(load(f"tampu.engines.{engine}")) - _written()


@functools.cache
def _written() -> set[object]:
    """All that is written as a constant somewhere in the package."""
    return {node.value for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Constant)}


SETUP = {"checks.py", "connect.py", "files.py", "migrations.py", "user_transaction.py"}
"""Modules that open a database, bring it to the newest schema or look for damage. They run no verb."""
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b.*\btampu[._]\w", re.DOTALL)


def test_the_statements_of_the_verbs_are_in_files_with_their_headers() -> None:
    files = [file for file in sorted((SOURCE / "engines").rglob("*.py")) if file.name not in SETUP]
    inline = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.match(node.value)
    ]
    assert len(files) > 50
    assert inline == [], "write it into the engine's `statements/`, with its header"


def test_every_operation_of_mariadb_is_asked_for() -> None:
    assert not set(OPERATIONS) - _asked_for(_trees())
