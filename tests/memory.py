"""Folders in memory, for files of which nobody asks whether the disk has them: on a disk, each commit waits for it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 1 << 30


@contextlib.contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder in memory for as long as this lasts; where there is no room for one, the other."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="tampu-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
