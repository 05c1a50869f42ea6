"""The process from which Spark forks its Python workers on this machine: `python -m tampu.spark.runtime.daemon MODULE`.

It has imported what the workers need, so each is at work at once. A worker collects garbage after every task; what was
imported is left out of that, because looking it over takes longer than a small task.
"""

import gc
import importlib
import sys

from pyspark import daemon

if __name__ == "__main__":
    for module in (sys.argv[1], "pyarrow.parquet", "tampu.spark.source", "tampu.stores.open_store"):
        importlib.import_module(module)
    gc.freeze()
    daemon.manager()
