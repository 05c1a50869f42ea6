"""The Python that Spark starts on this machine: this interpreter, with the installed PySpark.

Spark puts a zipped copy of PySpark first on the path of every process it starts. Importing from it takes a second each
time, because Python does not cache compiled files of a zip. The installed copy is the same and takes a quarter of that.
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
    """The script that Spark starts instead of the interpreter; the interpreter itself without a shell or a cache."""
    if os.name != "posix" or '"' in sys.executable:
        return sys.executable
    digest = hashlib.blake2b(sys.executable.encode(), digest_size=6).hexdigest()
    try:
        return str(keep(f"python-{digest}/python", _WRAPPER.format(python=sys.executable)))
    except OSError:
        return sys.executable
