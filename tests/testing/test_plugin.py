"""The pytest plugin: its fixtures are there for anybody who has tampu installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest, tampu

app = tampu.App("jobs.db")

@app.task
def add(a: int, b: int) -> int:
    return a + b

@pytest.fixture
def tampu_app():
    return app

def test_rehearsal(tampu_rehearsal, tampu_clock):
    add.options(delay=5).publish(1, 2)
    tampu_clock.advance(5)
    assert [ran.result for ran in tampu_rehearsal.drain()] == [3]
    tampu_rehearsal.assert_published(add, 1, 2)

def test_each_test_has_its_own_store(tampu_rehearsal):
    tampu_rehearsal.assert_not_published(add)
"""
PLAIN = """
import sys

def test_default_app(tampu_app, tampu_rehearsal):
    assert tampu_app.store is tampu_rehearsal.store

def test_nothing_is_imported_for_tests_that_ask_for_nothing():
    pass
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_fixtures_are_there_without_any_configuration(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    (tmp_path / "test_plain.py").write_text(PLAIN)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    assert not (tmp_path / "jobs.db").exists()
    output = run(tmp_path, "--fixtures").stdout
    for name in ("tampu_app", "tampu_clock", "tampu_rehearsal"):
        assert name in output
