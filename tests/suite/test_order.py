"""The tests of Spark begin at the top of a process's part of the list, and no test is lost on the way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import order

PARTS = 3


def item(nodeid: str, *fixtures: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, name=nodeid.rpartition("::")[2], fixturenames=fixtures)


@pytest.mark.parametrize("quick", [0, 2, 31, 300])
def test_each_part_begins_with_what_takes_long(quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(PARTS))
    given = [item(f"tests/broker/test_{n}.py::test") for n in range(quick)]
    given += [item("tests/lake/test_run.py::test"), item("tests/lake/test_whole_lakes.py::test")]
    given += [item("tests/spark/test_write.py::test", "spark"), item("tests/spark/test_rows.py::test")]
    given += [item("tests/examples/test_examples.py::test_example[lake_notebook.py]")]
    items = list(given)
    order.pytest_collection_modifyitems(items)
    assert sorted(one.nodeid for one in items) == sorted(one.nodeid for one in given)
    if quick > PARTS:
        first, second = len(items) // PARTS, len(items) // PARTS + (len(items) - len(items) // PARTS) // 2
        assert items[0].nodeid == "tests/spark/test_write.py::test"
        assert [one.nodeid for one in items[first : first + 2]] == [
            "tests/lake/test_whole_lakes.py::test",
            "tests/lake/test_run.py::test",
        ]
        assert items[second].nodeid == "tests/examples/test_examples.py::test_example[lake_notebook.py]"


def test_one_process_keeps_the_order_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    items = [item("tests/broker/test_a.py::test"), item("tests/lake/test_run.py::test")]
    before = list(items)
    order.pytest_collection_modifyitems(items)
    assert items == before


def test_every_file_that_is_named_is_there() -> None:
    root = Path(__file__).parents[2]
    assert [path for path in order.LONGEST if not (root / path).is_file()] == []
