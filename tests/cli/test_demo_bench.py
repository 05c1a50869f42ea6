"""`tampu demo` and `tampu bench`: they run, tell, and leave what they promise."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.run_command import Command


def test_demo_leaves_something_to_look_into_and_runs_again(command: Command) -> None:
    first = command.ok("demo", "--fast")
    assert first["url"] == "tampu-demo.db"
    assert not command.path.exists(), "the demo must not touch the store of TAMPU_URL"
    left = first["left"]
    assert (left["emails"]["dead"], left["reports"]["delayed"], left["for-you"]["ready"]) == (1, 1, 1)
    assert first["done"] > 5
    again = command.ok("demo", "--fast")
    assert (again["left"]["emails"]["dead"], again["left"]["for-you"]["ready"]) == (2, 1)
    shown = command.ok("show", first["dead_id"], "--url", "tampu-demo.db")
    assert [f["attempt"] for f in shown["failures"]] == [1, 2, 3]
    assert "ConnectionError" in shown["failures"][0]["traceback"]


def test_the_commands_that_demo_prints_work(command: Command) -> None:
    ran = command("demo", "--fast", "--url", "mine.db")
    assert ran.code == 0
    calls = [line.split(" # ")[0] for line in ran.out.splitlines() if line.startswith("  tampu ")]
    assert len(calls) >= 6
    for call in calls:
        answer = command(*shlex.split(call)[1:])
        assert answer.code == 0, (call, answer)


def test_bench_measures_and_leaves_nothing(command: Command) -> None:
    found = command.ok("bench", "--seconds", "20ms")
    assert [(r["what"], r["batch"]) for r in found["results"]][:3] == [("publish", 1), ("claim", 1), ("ack", 1)]
    assert all(row["per_second"] > 0 for row in found["results"])
    assert list(command.path.parent.iterdir()) == []
    human = command("bench", "--seconds", "10ms")
    assert "messages/s" in human.out
    assert json.dumps(found)


@pytest.mark.parametrize("words", [["--dir", "nowhere"], ["--seconds", "long"]])
def test_bench_refuses_what_it_cannot_do(command: Command, words: list[str]) -> None:
    assert command("bench", *words).code == 2
    assert list(Path().iterdir()) == []
