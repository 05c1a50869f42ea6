"""Which Java Spark is given. Other Javas are stood in for by scripts; the runtime from the package is the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tampu
from tampu.spark.runtime import java, python


def _fake(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    script.chmod(0o755)
    return script


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    for name in ("sh", "echo"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("21-ea", 21), ("strange", 0)]
)
def test_the_major_version_is_read(tmp_path: Path, text: str, major: int) -> None:
    assert java.version(str(_fake(tmp_path / "any", text))) == major


def test_what_does_not_run_is_no_java(tmp_path: Path) -> None:
    assert java.version(str(tmp_path / "absent")) == 0


def test_java_home_is_used_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(tmp_path / "jdk" / "bin", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java.provide() == str(tmp_path / "jdk")


def test_a_java_on_the_path_is_used_before_an_old_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake(tmp_path / "old" / "bin", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    _fake(tmp_path / "new", "17.0.2")
    monkeypatch.setenv("PATH", f"{tmp_path / 'new'}:{os.environ['PATH']}")
    assert java.provide() == ""
    assert "JAVA_HOME" not in os.environ


def test_without_any_the_runtime_of_the_extra_serves_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    home = java.provide()
    assert os.environ["JAVA_HOME"] == home
    # Spark's launcher always passes this; the runtime does not know the module.
    ran = subprocess.run(  # noqa: PLW1510 - its code is what the test is about
        [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0
    assert java.version(f"{home}/bin/java") >= java.LEAST


def test_the_wrapper_is_made_again_when_the_runtime_moved(tmp_path: Path) -> None:
    home = java.bundled()
    assert home is not None
    wrapper = Path(home, "bin", "java")
    good = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    assert java.bundled() == home
    assert wrapper.read_text() == good
    assert [path.name for path in wrapper.parent.iterdir()] == ["java"]


def test_without_java_and_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(tampu.Unavailable) as refused:
        java.provide()
    assert "[spark]'" in str(refused.value.hint)  # of the package, or of the clone that tampu runs from


def test_the_python_of_spark_takes_pyspark_from_where_it_is_installed(tmp_path: Path) -> None:
    zipped = f"{tmp_path}/pyspark.zip:{tmp_path}/mine:{tmp_path}/py4j-0.10-src.zip:{tmp_path}/with space"
    ran = subprocess.run(
        [python.provide(), "-c", "import os, sys; print(os.environ['PYTHONPATH']); print(sys.prefix)"],
        env={**os.environ, "PYTHONPATH": zipped},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.splitlines() == [f"{tmp_path}/mine:{tmp_path}/with space", sys.prefix]
