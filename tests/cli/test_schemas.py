"""`tampu schema from-task` and `tampu schema example`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.run_command import Command

TASKS = """
import tampu
app = tampu.App("memory://")
@app.task(name="send")
def send(to: str, copies: int = 1) -> None: ...
@app.task(name="stop")
def stop() -> None: ...
"""


def test_a_schema_is_made_from_a_task_and_an_example_from_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("letters.py").write_text(TASKS)
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "letters", raising=False)
    made = command("schema", "from-task", "letters:app:send")
    assert made.code == 0, made.err
    assert "Arguments" in json.loads(made.out)["$defs"]
    Path("send.json").write_text(made.out)
    assert command("schema", "put", "send", "send.json", "--type", "send").code == 0
    assert json.loads(command("schema", "example", "send").out) == {"to": "text", "copies": 1}
    unnamed = command("schema", "from-task", "letters:app")
    assert unnamed.code == 3
    assert "send, stop" in unnamed.err
    assert command("schema", "example", "nothing").code == 3
