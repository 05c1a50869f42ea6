"""The temporary folders of the tests: in memory where it has room, and none stays when its run has ended."""

import os
import tempfile
from pathlib import Path

from tests import memory


def test_a_folder_that_is_in_use_stays_and_one_that_is_not_goes(tmp_path: Path) -> None:
    used, left = tmp_path / "used", tmp_path / "left"
    used.mkdir()
    left.mkdir()
    (left / "file").touch()
    lock = memory._lock(used)
    memory._remove_unused(used)
    memory._remove_unused(left)
    assert (used.exists(), left.exists()) == (True, False)
    os.close(lock)
    memory._remove_unused(used)
    assert not used.exists()


def test_processes_that_tests_start_use_the_same_place() -> None:
    assert tempfile.gettempdir() == os.environ.get("TMPDIR", tempfile.gettempdir())
