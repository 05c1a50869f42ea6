"""What the fault tests share: how long they run, and a place for logs."""

import os
from pathlib import Path

import pytest


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
