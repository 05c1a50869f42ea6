"""The document of the tables against the tables."""

import re
from pathlib import Path

import pytest

from tampu.lake.tables import LINEAGE, TABLES, Table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "lake-tables.md"


INTRODUCTION = DOCUMENT.read_text(encoding="utf-8").partition("\n## ")[0]


def section(name: str) -> str:
    """The part of the document under a table's heading."""
    _, _, after = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {name}\n")
    return after.partition("\n## ")[0]


@pytest.mark.parametrize("table", [*TABLES, LINEAGE], ids=lambda table: table.name)
def test_document_names_exactly_the_columns_of_each_table(table: Table) -> None:
    lines = [line for line in section(table.name).splitlines() if line.startswith("| `")]
    named = [word for line in lines for word in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(named) == sorted(table.schema.names)
    assert set(table.key) <= set(named)


@pytest.mark.parametrize("table", [*TABLES, LINEAGE], ids=lambda table: table.name)
def test_document_has_a_query_of_each_table_and_says_its_key(table: Table) -> None:
    text = section(table.name)
    assert f"FROM {table.name}" in text
    key = text.partition("Key: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", key)) == set(table.key)
    assert table.version == 1 or f"`{table.name}`" in INTRODUCTION, "the document says which are not at version 1"
