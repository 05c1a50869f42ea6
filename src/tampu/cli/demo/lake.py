"""The second act of the demo: the pipeline writes the lake, and the insights are printed.

In a clone, what the lake needs is installed only now: `make run` names the command in TAMPU_DEMO_INSTALL.
"""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
from importlib.util import find_spec
from typing import Any

import tampu
from tampu.cli.session import Session

_INSTALL = "TAMPU_DEMO_INSTALL"
_MEGABYTES = 640
"""What Spark, Java, DuckDB and Arrow have together."""


def possible() -> bool:
    return all(find_spec(name) is not None for name in ("pyspark", "deltalake", "duckdb"))


def wanted() -> bool:
    """True if the lake can be shown, perhaps after its part was installed."""
    return possible() or bool(os.environ.get(_INSTALL))


def install(session: Session) -> None:
    """Install what the lake needs, if a command for it is named and something is missing."""
    command = os.environ.get(_INSTALL)
    if possible() or not command:
        return
    if not session.json:
        session.out.line(
            f"It needs Spark, a Java runtime, DuckDB and Arrow: about {_MEGABYTES} MB, downloaded once. "
            "The queue goes on working meanwhile; Ctrl-C stops it all."
        )
    done = subprocess.run(shlex.split(command), stdout=subprocess.DEVNULL if session.json else None, check=False)
    importlib.invalidate_caches()
    if done.returncode or not possible():
        raise tampu.Unavailable(
            "what the lake needs could not be installed", hint='try again with make run, or go on with ARGS="--no-lake"'
        )


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
        session.out.line("Starting Spark, to write every transition to tables (some seconds) …")
    work = Pipeline(session.store, Lake(path))
    with translated():
        reports = work.run(lambda: working_session(None, None, {"spark.sql.shuffle.partitions": "1"}, short=True))
    transitions = sum(report.transitions for report in reports)
    if not session.json:
        session.out.line(f"{transitions:,} transitions are in {path}. Insights from its gold tables:\n")
        show(session.out, gather(QueryLake(path), days=1, tenant=session.tenant))
    return {"lake": path, "transitions": transitions}
