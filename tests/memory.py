"""The temporary folders of a run of the tests are in memory: on a disk, an embedded store waits for it at each commit.

One folder holds them all, for the test processes and whatever they start. It is removed when the run ends; the folder
of a run that was killed is removed by the next one. `TMPDIR=/var/tmp make test` uses a disk instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 3 << 30
"""With less, the disk has to do."""
_PREFIX = "tampu-run-"
_MADE = pytest.StashKey[tuple[Path, int]]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Only in the process that starts the others; they find it in their environment."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    for left in MEMORY.glob(f"{_PREFIX}*"):
        if left.stat().st_mtime < time.time() - 60:  # one that is new may be about to get its lock
            _remove_unused(left)
    if shutil.disk_usage(MEMORY).free < ROOM:
        return
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=MEMORY))
    folder.chmod(0o711)  # PostgreSQL may run as another user, which needs to pass through
    config.stash[_MADE] = folder, _lock(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if made := config.stash.get(_MADE, None):
        folder, lock = made
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """Held by the run that uses the folder, until the process ends, however it ends."""
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _remove_unused(folder: Path) -> None:
    try:
        lock = _lock(folder)
    except OSError:  # in use, or another user's
        return
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
