"""A test process that crashes says where: what each of its threads did is printed at the end of the whole run."""

from __future__ import annotations

import faulthandler
import tempfile
from pathlib import Path
from typing import Any

import pytest

_FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_FILE = pytest.StashKey[Any]()
_NAME = "crashes"
_AROUND = ("/pluggy/", "/_pytest/", "/xdist/", "/execnet/", "Extension modules:")
"""Of no interest in where a test was."""


@pytest.hookimpl(trylast=True)  # after pytest's own, which writes where nobody looks
def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", None)
    if given is None:
        config.stash[_FOLDER] = tempfile.TemporaryDirectory(prefix="tampu-crashes-")
    else:
        file = (Path(given[_NAME]) / given["workerid"]).open("w")
        config.stash[_FILE] = file
        faulthandler.enable(file)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A process for tests is about to start."""
    node.workerinput[_NAME] = node.config.stash[_FOLDER].name


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for dump in sorted(Path(config.stash[_FOLDER].name).iterdir()):
        lines = [line for line in dump.read_text().splitlines() if not any(part in line for part in _AROUND)]
        if lines:
            terminalreporter.section(f"crash of {dump.name}", sep="=")
            terminalreporter.write_line("\n".join(lines))


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_FOLDER, None):
        folder.cleanup()
