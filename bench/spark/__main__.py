"""`make bench-spark`: the Spark side, a table each, and JSON.

ARGS="--only read --engine postgres" selects, so does "--only lake.checks"; --quick is a rough measurement.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import platform
import sys
from pathlib import Path

from rich.console import Console

from bench.measure import Row, show, write
from bench.spark.stores import ENGINES

PARTS = {
    "read": "Reading: the journal and snapshots, against Parquet",
    "write": "Writing: a DataFrame as messages, against a bare bulk insert",
    "lake": "The pipeline: from the journal to the lake's tables",
}


def main() -> int:
    import pyspark

    there = [name for name in PARTS if importlib.util.find_spec(f"bench.spark.{name}") is not None]
    options = argparse.ArgumentParser(prog="bench.spark", description=__doc__)
    known = [*there, *(f"lake.{part}" for part in importlib.import_module("bench.spark.lake").PARTS)]
    options.add_argument("--only", action="append", choices=known, help="only this part (may be given again)")
    options.add_argument("--engine", choices=ENGINES, default="file", help="which store is read and written")
    options.add_argument("--quick", action="store_true", help="small numbers: a rough look")
    options.add_argument(
        "--json", type=Path, nargs="?", const=Path("build/bench-spark.json"), default=Path("build/bench-spark.json"),
        help="where the JSON goes",
    )  # fmt: skip
    chosen = options.parse_args()
    console = Console()
    console.print(
        f"Python {platform.python_version()}, Spark {pyspark.__version__}, {platform.machine()}; ratios are of sides"
        " that ran in turns in this run; trust them, not the absolute numbers"
    )
    report: dict[str, list[Row]] = {}
    for name in chosen.only or there:
        console.print(f"measuring {name} …")
        module, _, part = name.partition(".")
        few = [part] if part else []
        report[name] = importlib.import_module(f"bench.spark.{module}").run(chosen.quick, chosen.engine, *few)
        show(console, PARTS[module], report[name])
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    write(chosen.json, report)
    console.print(f"written to {chosen.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
