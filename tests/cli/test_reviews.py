"""`tampu pattern` and `tampu review`: from putting a pattern to a decision."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run_command import Command

PATTERN = {"context": [{"title": "Who", "text": "{{ message.payload.who }}"}], "fields": {"rate": "number"}}


def test_a_review_from_the_pattern_to_the_decision(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "loan.json"
    file.write_text(json.dumps(PATTERN))
    assert command.ok("pattern", "put", "loan", str(file))["version"] == 1
    assert [one["name"] for one in command.ok("pattern", "list")["patterns"]] == ["loan"]
    assert "Who\nada" in command("pattern", "preview", "loan", '{"who": "ada"}').out
    first, second = (
        command.ok("publish", "loans", '{"who": "\\u001b[31mada"}', "--review", "loan")["id"] for _ in range(2)
    )
    assert [one["id"] for one in command.ok("review", "list", "--pattern", "loan")["reviews"]] == [first, second]
    shown = command("review", "show", first).out
    assert " [31mada" in shown
    assert "\x1b[31m" not in shown
    assert command.ok("review", "claim", first, "--by", "ada")["assignee"] == "ada"
    assert command.ok("review", "reassign", first, "bob")["assignee"] == "bob"
    assert command.ok("review", "comment", first, "hm", "--by", "bob")["comments"][0]["text"] == "hm"
    assert command("review", "decide", first, "approve", "--by", "ada").code != 0
    made = command.ok("review", "decide", first, "approve", "--by", "bob", "--field", "rate=2.5", "--reason", "fine")
    assert made["decision"]["fields"] == {"rate": 2.5}
    assert command.ok("review", "decide", second, "refuse", "--by", "bob")["state"] == "decided"
    assert command("review", "show", "7d0c2f6e-8b1a-4c57-9f0e-5a3b8e6d1c20").code == 3
    assert command.ok("pattern", "delete", "loan")["deleted"]
