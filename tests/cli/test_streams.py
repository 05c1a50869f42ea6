"""Streams that were closed, or cannot be written to: the work is done, and the exit code says what happened."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run_command import Command

TAMPU = f"{sys.executable} -c 'from tampu.cli.main import main; main()'"


def shell(words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", f"{TAMPU} {words}"], capture_output=True, text=True, timeout=120, check=False)


def test_a_message_is_published_without_an_output(command: Command) -> None:
    answer = shell("publish q 1 >&-")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == 1


def test_without_an_input_there_is_nothing_to_read(command: Command) -> None:
    answer = shell("publish q - <&-")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error [invalid_message]: ")
    assert shell("publish q --lines <&-").returncode == 0
    assert not command.path.exists()


@pytest.mark.parametrize("nowhere", ["2>&-", "2>/dev/full"])
def test_an_error_that_nobody_hears_has_its_exit_code(command: Command, nowhere: str) -> None:
    if "/dev/full" in nowhere and not Path("/dev/full").exists():
        pytest.skip("only Linux has it")
    command.ok("publish", "q", "1")
    answer = shell(f"stats nope {nowhere}")
    assert (answer.returncode, answer.stdout) == (3, "")
    claimed = shell(f"claim q {nowhere}")  # its remark goes nowhere
    assert claimed.returncode == 0
    assert "receipt q/" in claimed.stdout
