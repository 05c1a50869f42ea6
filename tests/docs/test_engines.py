"""docs/reference/engines.md says what the conformance suite holds each engine to, no more and no less."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_engines_is_what_the_suite_says() -> None:
    """In a process of its own: collecting a suite inside a run of the suite would mix them up."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.conformance.matrix", "--check"], cwd=ROOT, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"run make engines:\n{ran.stdout}{ran.stderr}"
