"""The second half of the demo: the pipeline writes the lake, and the insights are printed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from tampu.cli.session import Session


def possible() -> bool:
    return all(find_spec(name) is not None for name in ("pyspark", "deltalake", "duckdb"))


def run(session: Session) -> dict[str, Any]:
    """Run the pipeline over the demo's store and print the insights. Returns a summary for --json."""
    from tampu.cli.lake.run_pipeline import translated, working_session
    from tampu.cli.lake.view import show
    from tampu.lake.insights import gather
    from tampu.lake.query import Lake as QueryLake
    from tampu.lake.run import Pipeline
    from tampu.lake.storage import Lake
    from tampu.lake.storage.urls import default_lake

    path = default_lake(session.store)
    if not session.json:
        session.out.line("\nStarting Spark, to write every transition to tables (some seconds) …", "bold")
    work = Pipeline(session.store, Lake(path))
    with translated():
        reports = work.run(lambda: working_session(None, None, {"spark.sql.shuffle.partitions": "1"}, short=True))
    transitions = sum(report.transitions for report in reports)
    if not session.json:
        session.out.line(f"{transitions:,} transitions are in {path}. Insights from its gold tables:\n")
        show(session.out, gather(QueryLake(path), days=1, tenant=session.tenant))
    return {"lake": path, "transitions": transitions}
