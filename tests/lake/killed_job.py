"""Keeps several lakes in a process of its own, until one task of each has written its files in the layer that the lake
is named after, and then kills driver and Java without a word: `killed_job URL LAKE URL LAKE...`.

It needs a process group of its own. A driver takes seconds to start, so one dies in several places.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tampu.spark
from tampu.lake import jobs
from tampu.lake.run import Pipeline
from tampu.lake.storage import Lake
from tests.spark.conftest import quick

real = jobs._writer


def stopping(name: str, target: Any, tag: str, made: Any) -> Callable[[Any], Iterator[Any]]:
    """Writes as always; the first task of the layer that the lake is named after then waits for the end."""
    write = real(name, target, tag, made)
    lake = Path(target.place.uri).parents[1]
    if not name.startswith(lake.name):
        return write
    reached = lake.with_suffix(".reached")

    def last(batches: Any) -> Iterator[Any]:
        files = list(write(batches))
        if files and not reached.exists():
            reached.touch()
            time.sleep(3600)  # noqa: TID251 - it is killed
        yield from files

    return last


def main(*args: str) -> None:
    vars(jobs)["_writer"] = stopping
    urls, lakes = args[::2], [Path(path) for path in args[1::2]]
    spark = tampu.spark.session(f"local[{2 * len(lakes) + 2}]", config=quick())
    for url, lake in zip(urls, lakes, strict=True):
        work = Pipeline(url, Lake(lake), name=lake.name)
        threading.Thread(target=work.run, args=[spark.newSession], daemon=True).start()
    waited = [lake.with_suffix(".reached") for lake in lakes]
    while not all(path.exists() for path in waited):
        time.sleep(0.05)  # noqa: TID251 - executors are waited for
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
