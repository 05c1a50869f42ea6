"""Rows are read by name: a number says nothing to the reader, and a new column moves it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tampu

ROOT = Path(tampu.__file__).parent
ROWS = {"row", "r", "record", "status", "reply", "answer", "fields", "columns"}
"""How a row, or what a database answers, is called anywhere."""
NOT_ROWS = {"match", "raw", "id_prefix", "seqs", "args", "command"}
"""In engines and stores, what else has a second value: groups of a pattern, bytes, numbers, words of a command."""


def positions(name: str, tree: ast.AST) -> Iterator[str]:
    """Each place that reads a row by position. The first value of a list is not one."""
    strict = name.startswith(("engines/", "stores/"))
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=int(position))) if position > 0:
                of = _name(value)
                if of in ROWS or (strict and of is not None and of not in NOT_ROWS):
                    yield f"{name}:{node.lineno}: {ast.unparse(node)}"


def _name(value: ast.expr) -> str | None:
    """``rows`` of ``rows``, ``self.rows`` and ``rows[0]``; None of a call, such as ``text.split()``."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner):
            return _name(inner)
    return None


def test_no_row_is_read_by_position() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    assert len(paths) > 100
    found = [place for path in paths for place in positions(str(path.relative_to(ROOT)), ast.parse(path.read_text()))]
    assert found == [], "unpack the row (`for seq, q, state in rows`), or give it names with a NamedTuple"


def test_a_row_read_by_position_is_noticed() -> None:
    source = "row[2]; self.found[1]; [f(found[0][3]) for found in all]; text.split()[1]; match[2]; rows[0]; names[1:]"
    assert [place.rpartition(" ")[2] for place in positions("engines/x.py", ast.parse(source))] == [
        "row[2]",
        "self.found[1]",
        "found[0][3]",
    ]
    assert list(positions("cli/x.py", ast.parse("row[2]; parts[1]"))) == ["cli/x.py:1: row[2]"]
