"""`tampu apply`, `tampu diff` and `tampu export-topology`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run_command import Command


def test_a_file_is_applied_compared_and_exported(command: Command) -> None:
    Path("shop.yaml").write_text("queues:\n  orders: {lease: 2m}\nrules:\n  r: {actions: [{copy: all}]}\n")
    assert command("apply", "shop.yaml", "--dry-run").code != 0, "there is no store yet"
    applied = command("apply", "shop.yaml")
    assert applied.code == 0
    assert [line for line in applied.out.splitlines() if not line.startswith(" ")] == ["+ queues.orders", "+ rules.r"]
    assert "2 changes made" in applied.err
    same = command("diff", "shop.yaml")
    assert (same.code, same.out, same.err) == (0, "", "no changes\n")
    Path("now.yaml").write_text(command("export-topology").out)
    assert command("diff", "now.yaml", "--prune").code == 0
    assert command.ok("export-topology") == {
        "queues": {"orders": {"lease": 120.0}}, "rules": {"r": {"actions": [{"copy": "all"}]}},
    }  # fmt: skip
    Path("less.yaml").write_text("queues:\n  orders: {lease: 60}\nrules:\n")
    differs = command("diff", "less.yaml", "--prune")
    assert differs.code == 1
    assert differs.out.splitlines() == ["~ queues.orders", "    lease: 120.0 → 60.0", "- rules.r"]
    assert len(command.ok("apply", "less.yaml", "--prune")["changes"]) == 2
    assert command.ok("export-topology") == {"queues": {"orders": {"lease": 60.0}}}


def test_mistakes_are_named_and_leave_no_file_behind(command: Command) -> None:
    Path("bad.yaml").write_text("queues:\n  orders:\n    leese: 1\n")
    failed = command("apply", "bad.yaml")
    assert failed.code == 2
    assert "bad.yaml:3: queues.orders: no such setting: leese" in failed.err
    assert not Path("jobs.db").exists()
    for arguments in (["apply"], ["apply", "missing.yaml"], ["diff", "."]):
        assert command(*arguments).code == 2, arguments
    assert "queues" in json.loads(command("apply", "--schema").out)["properties"]
