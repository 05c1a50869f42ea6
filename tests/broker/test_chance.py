"""The state of the module `random` belongs to the user's program: tampu neither changes it nor depends on it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LIFE = """
import random
import tampu

random.seed(7)
before = random.getstate()
with tampu.open("memory://") as store:
    store.publish_many("q", range(3))
    for lease in store.claim("q", limit=3):
        store.nack(lease)
assert random.getstate() == before, "the user's program now draws other numbers"
"""

JITTER = """
import random
import tampu
from tests.conformance.harness import FakeClock

random.seed(7)
with tampu.open("memory://", clock=FakeClock(), maintenance=False) as store:
    id = store.publish("q", 1).id
    store.nack(store.claim("q")[0])
    print(store.get(id).run_at)
"""


def run(script: str) -> str:
    """In a process of its own: who knows what other threads of this one draw."""
    answer = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_a_seeded_program_draws_the_same_with_tampu() -> None:
    run(LIFE)


def test_processes_that_seed_alike_do_not_retry_alike() -> None:
    assert len({run(JITTER) for _ in range(3)}) > 1


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_nobody_draws_from_the_module(folder: str) -> None:
    assert list(drawing(ROOT / folder)) == []


def drawing(folder: Path) -> Iterator[str]:
    """Uses of functions of `random`; its classes are for instances of one's own."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Attribute(ast.Name("random"), name) if name.islower():
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: random.{name}"
                case ast.ImportFrom("random", names):
                    found = [alias.name for alias in names if alias.name.islower()]
                    yield from (f"{file.relative_to(ROOT)}:{node.lineno}: random.{name}" for name in found)
