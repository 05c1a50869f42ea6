"""The tests may be started in the background, where Ctrl-C is ignored; what they start notices it all the same."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASK = "import signal; print(signal.getsignal(signal.{name}) == signal.SIG_IGN)"
START = f"""
import os, signal, subprocess, sys
from tests.signals import let_children_be_interrupted

signal.signal(signal.{{name}}, signal.SIG_IGN)
let_children_be_interrupted()
os.kill(os.getpid(), signal.{{name}})  # is still ignored here
subprocess.run([sys.executable, "-c", {ASK!r}], check=True)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_that_the_tests_ignore_reaches_what_they_start(number: signal.Signals) -> None:
    script = START.replace("{name}", number.name)
    words = [sys.executable, "-c", script]
    answer = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "False\n"), answer.stderr
