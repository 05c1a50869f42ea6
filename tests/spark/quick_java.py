"""Java options for the many short-lived JVMs of the tests: they start in about half the time.

The first compiler and one collector thread suit small, short jobs. Most of a start is reading Spark's classes, so a
first JVM leaves them, as Java has them in memory, in a file (class data sharing) that the others map.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tampu.spark.runtime import java

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".pytest_cache" / "java"
_FILE = "TAMPU_TEST_JAVA_CLASSES"
_PLAIN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


def options() -> str:
    """For processes that tests start, the environment tells where the file is."""
    if _FILE not in os.environ:
        os.environ[_FILE] = _classes()
    kept = os.environ[_FILE]
    plain = f"{_PLAIN} -Djava.io.tmpdir={tempfile.gettempdir()}"
    return f"{plain} -XX:SharedArchiveFile={kept}" if kept else plain


def _classes() -> str:
    """The file, made if it is not there; "" for a Java that cannot make one."""
    import pyspark

    home = java.provide()
    ran = subprocess.run([Path(home, "bin", "java") if home else "java", "-version"], capture_output=True, check=True)
    named = hashlib.blake2b(ran.stderr + pyspark.__file__.encode() + pyspark.__version__.encode(), digest_size=8)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{named.hexdigest()}.jsa"
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes start together
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=KEPT) as folder:
                made = Path(folder, "made")
                subprocess.run([sys.executable, "-m", __name__, made], cwd=ROOT, check=True, capture_output=True)
                made.touch()
                made.rename(kept)
    return str(kept) if kept.stat().st_size else ""


def _make(path: str) -> None:
    """Use what most tests use, and leave Java in order: then it writes the file."""
    from pyspark import SparkContext

    import tampu.spark

    config = {"spark.driver.extraJavaOptions": f"{_PLAIN} -XX:ArchiveClassesAtExit={path}", "spark.driver.memory": "1g"}
    spark = tampu.spark.session("local[2]", config=config)
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(10).selectExpr("cast(id AS string) AS payload")
        rows.write.format("tampu").mode("append").options(url=f"{folder}/jobs.db", queue="jobs").save()
    gateway: Any = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


if __name__ == "__main__":
    _make(sys.argv[1])
