"""What the fault tests share: a seed that is printed and can be given again, and a place for many small files."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def seed() -> int:
    """TAMPU_SEED=n replays; pytest shows what was printed when a test fails."""
    value = int(os.environ.get("TAMPU_SEED") or random.SystemRandom().randrange(10**9))
    print(f"replay with TAMPU_SEED={value}")
    return value


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of images are opened, and what is lost is simulated anyway."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="tampu-faults-", dir=memory))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def long() -> int:
    """TAMPU_FAULTS_LONG=10 does ten times as much."""
    return int(os.environ.get("TAMPU_FAULTS_LONG", "1"))
