"""What a type checker knows of tasks: their arguments at publish, their results, calls of several tasks together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.worker.nursery import ROOT

_PROGRAM = """
import tampu

app = tampu.App("memory://")

@app.task(queue="emails", max_attempts=5)
async def send(to: str, *, subject: str = "hi") -> bytes:
    return b""

@app.task
def add(a: int, b: int) -> int:
    return a + b

reveal_type(send.publish("x").result(timeout=10))  # bytes
reveal_type(add.publish(1, 2).result())  # int
reveal_type(send.options(delay=60).publish("x", subject="y").result())  # bytes
reveal_type(add(1, 2))  # int
app.publish_many([send.message("x"), add.message(1, 2)])
reveal_type(add.options(delay="5m", labels={"a": "b"})(1, 2))  # int
add.options(dely=60)  # wrong
add.options(priority="high")  # wrong
app.cron("0 3 * * *", jitter="5m", limit=3)(add)
app.every("5m", jiter=3)(add)  # wrong
app.task(retry_on=(OSError, TimeoutError), dead_on=ValueError, timeout="1m")(lambda: None)
app.task(retry_on=lambda error, attempt: attempt < 3)(lambda: None)
app.task(retry_on=5)(lambda: None)  # wrong
send.publish(5)  # wrong
send.publish("x", subjekt="y")  # wrong
add.publish("a", 2)  # wrong
"""


def test_arguments_and_results_of_tasks_are_checked(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path), str(program)],
        cwd=ROOT, env={"MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    revealed: dict[int, str] = {}
    for line, text in re.findall(r"program\.py:(\d+): (.*)", checked.stdout):
        revealed[int(line)] = revealed.get(int(line), "") + text.replace("builtins.", "")
    for number, line in enumerate(_PROGRAM.splitlines(), 1):
        _, _, expected = line.partition("  # ")
        if expected == "wrong":
            assert "error: " in revealed[number]
        elif expected:
            assert f'Revealed type is "{expected}"' in revealed[number]
        else:
            assert number not in revealed, revealed[number]
