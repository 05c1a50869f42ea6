"""Runs the pipeline in a process of its own and kills it, without a word, at a step: `killed_job URL LAKE STEP`."""

import os
import signal
import sys

import tampu.spark
from tampu.lake.running import Pipeline
from tampu.lake.storage import Lake
from tests.spark.conftest import quick


def main(url: str, lake: str, step: str) -> None:
    def at(reached: str) -> None:
        if reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Pipeline(url, Lake(lake), on_step=at).run(lambda: tampu.spark.session("local[2]", config=quick()))


if __name__ == "__main__":
    main(*sys.argv[1:])
