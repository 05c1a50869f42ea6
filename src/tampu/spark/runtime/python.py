"""The Python that Spark starts on this machine: ours, with PySpark from where it is installed.

Spark puts a zipped copy of PySpark in front of the path of every process it starts. Importing from it takes a second
each time, because nothing in a zip is kept compiled; the installed copy is the same and takes a quarter of it.
"""

from __future__ import annotations

import hashlib
import os
import sys

from tampu.spark.runtime.scripts import keep

_WRAPPER = """#!/bin/sh
kept=
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept="$kept${{kept:+:}}$entry" ;;
  esac
done
unset IFS
PYTHONPATH="$kept"
export PYTHONPATH
exec "{python}" "$@"
"""


def provide() -> str:
    """What to start instead of the interpreter; the interpreter itself where there is no shell or no cache."""
    if os.name != "posix" or '"' in sys.executable:
        return sys.executable
    digest = hashlib.blake2b(sys.executable.encode(), digest_size=6).hexdigest()
    try:
        return str(keep(f"python-{digest}/python", _WRAPPER.format(python=sys.executable)))
    except OSError:
        return sys.executable
