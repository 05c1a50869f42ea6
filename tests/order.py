"""The order of the tests when several processes share them.

With `--dist=worksteal`, each process begins at the top of an equal part of the list, and one that has nothing left
takes tests from the bottom of another's part. So what takes long is at the top of the parts, or one process would still
be at it when the others are done. Spark is slow to start, and its first jobs are slow: its tests are at the top of one
part, those of the lake at the top of another, and a process that has neither starts no Spark.
"""

from __future__ import annotations

import os

import pytest

LONGEST = (
    "tests/lake/test_whole_lakes.py",
    "tests/lake/test_pipeline_kills.py",
    "tests/spark/test_clusters.py",
    "tests/spark/test_queue_stream_kills.py",
    "tests/spark/test_one_row.py",
    "tests/lake/test_object_store.py",
    "tests/lake/test_pipeline_command.py",
    "tests/lake/test_run.py",
    "tests/lake/test_migrated_store.py",
    "tests/lake/test_what_comes_in.py",
)
"""Of those with Spark; the others take some seconds each."""
DOCUMENTS = ("README.md", "pipeline.md", "spark-")
"""Parts of the names of those that use Spark."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if parts == 1:
        return
    tops: list[list[pytest.Item]] = [[] for _ in range(parts)]
    rest: list[pytest.Item] = []
    for item in items:
        top = _top(item)
        (rest if top is None else tops[top % parts]).append(item)
    left = len(items)
    items.clear()
    for number, top_items in enumerate(tops):
        size = left // (parts - number)
        left -= size
        fill = max(size - len(top_items), 0)
        items += [*sorted(top_items, key=_rank), *rest[:fill]]
        del rest[:fill]
    items += rest


def _top(item: pytest.Item) -> int | None:
    """The number of the part at whose top the test is, if it is at a top."""
    path = item.nodeid.partition("::")[0]
    if "standalone_cluster" in item.name or "lake_notebook" in item.name or "views" in item.name:
        return 2  # in processes of their own
    if path.startswith("tests/lake/") or "local_cluster" in item.name:
        return 1
    if path.startswith("tests/docs/") and any(part in item.name for part in DOCUMENTS):
        return 1
    return 0 if "spark" in getattr(item, "fixturenames", ()) else None


def _rank(item: pytest.Item) -> int:
    """Tests of one file stay together."""
    path = item.nodeid.partition("::")[0]
    return LONGEST.index(path) if path in LONGEST else len(LONGEST)
