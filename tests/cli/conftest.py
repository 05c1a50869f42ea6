"""What the tests of the command share: running it on a file of their own."""

from pathlib import Path

import pytest

from tests.cli.run_command import Command


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in an empty folder, with TAMPU_URL naming a file that is not there yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAMPU_TENANT", raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    monkeypatch.setenv("COLUMNS", "200")
    return Command(tmp_path / "jobs.db")
