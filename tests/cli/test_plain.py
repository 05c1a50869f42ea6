"""Terminals and logs that are not UTF-8: everything is printed, nothing ends in a traceback."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

from tampu.cli.main import app
from tests.cli.run_command import Command


def run(encoding: str, *words: str) -> Result:
    return CliRunner(charset=encoding).invoke(app, words, prog_name="tampu")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_terminal_cannot_write_is_escaped(command: Command, encoding: str) -> None:
    command.ok("publish", "q", '"λ says ' + "x" * 200 + '"', "--label", "name=λ")
    id = command.ok("peek", "q")["messages"][0]["id"]
    for words in (["stats"], ["peek", "q"], ["list", "q"], ["show", id], ["queues"], ["journal"], ["claim", "q"]):
        answer = run(encoding, *words)
        assert answer.exit_code == 0, answer.exception
    assert "\\u03bb says" in run(encoding, "show", id).stdout
    refused = run(encoding, "stats", "λ")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error [invalid_message]: '\\u03bb' is not a queue name")
    assert run(encoding, "--help").exit_code == 0


def test_columns_stay_in_line_where_a_dot_has_another_sign(command: Command) -> None:
    command.ok("publish", "q", "1")
    lines = run("ascii", "stats").stdout.splitlines()
    (head,) = [line for line in lines if "delayed" in line]
    (row,) = [line for line in lines if "open " in line]
    assert row.index(".") == head.index("delayed") + len("delayed") - 1


def test_json_is_utf_8_everywhere(command: Command) -> None:
    command.ok("publish", "q", '"λ"')
    assert '"payload":"λ"'.encode() in run("ascii", "peek", "q", "--json").stdout_bytes


def test_a_real_process_may_have_ascii_only(command: Command) -> None:
    command.ok("publish", "q", "1")
    code = "from tampu.cli.main import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", code, "stats"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii:strict"},
        timeout=120,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, b"")
