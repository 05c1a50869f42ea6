"""Runs the pipeline in a process of its own and kills it, without a word: `killed_job URL LAKE STEP [NAME]`.

It dies when the step is reached. With the name of a reader, executors do all the work, and one of them kills driver
and Java when it has written the files of the first task after the step: it needs a process group of its own then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tampu.spark
from tampu.lake import run
from tampu.lake.hands import Hands
from tampu.lake.storage import Lake
from tests.spark.conftest import quick


def fatal(act: Callable[[Any], Iterable[str]]) -> Callable[[Any], Iterator[str]]:
    driver = os.getpgrp()

    def last(part: Any) -> Iterator[str]:
        yield from list(act(part))
        os.killpg(driver, signal.SIGKILL)

    return last


class Doomed(Hands):
    """Whoever works for it once it is armed kills it."""

    armed = False

    def each(self, parts: Any, act: Any, *more: Any) -> list[str]:
        return super().each(parts, fatal(act) if self.armed else act, *more)

    def gathered(self, parts: Any, read: Any, sizes: Any, rows: int, schema: Any, spread: Any, act: Any) -> list[str]:
        return super().gathered(parts, read, sizes, rows, schema, spread, fatal(act) if self.armed else act)


def without_spark(url: str, lake: str, step: str) -> None:
    def at(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    run.Pipeline(url, Lake(lake), on_step=at).run(lambda: sys.exit("Spark is not needed here"))


def with_spark(url: str, lake: str, step: str, name: str) -> None:
    def at(reached: str) -> None:
        Doomed.armed = Doomed.armed or reached == step

    vars(run)["Hands"] = Doomed
    spark = tampu.spark.session("local[2]", config=quick())
    run.Pipeline(url, Lake(lake), name=name, few=0, on_step=at).run(lambda: spark)


if __name__ == "__main__":
    (with_spark if len(sys.argv) > 4 else without_spark)(*sys.argv[1:])
