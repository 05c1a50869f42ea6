"""What the fault tests share: how long they run, and places for logs and for many small files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.memory import in_memory


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of images are opened, and what is lost is simulated anyway."""
    with in_memory(tmp_path) as folder:
        yield folder


@pytest.fixture
def long() -> int:
    """TAMPU_FAULTS_LONG=10 does ten times as much."""
    return int(os.environ.get("TAMPU_FAULTS_LONG", "1"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Where the crew writes down what it knows."""
    made = tmp_path / "logs"
    made.mkdir()
    return made
