"""Tracebacks without the frames of the worker: what a user wants to read first."""

from __future__ import annotations

import re
from pathlib import Path

_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+')
_OWN = Path(__file__).resolve().parents[2]
_HIDDEN = (str(_OWN / "worker"), str(_OWN / "import_string.py"), "<frozen importlib")
_IMPORTLIB = re.compile(r"[/\\]importlib[/\\]__init__\.py$")


def user_frames(traceback: str) -> str:
    """The traceback without the frames of the worker and of the import machinery."""
    kept: list[str] = []
    hidden = False
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            file = frame["file"]
            hidden = file.startswith(_HIDDEN) or _IMPORTLIB.search(file) is not None
        elif not line.startswith("    "):
            hidden = False
        if not hidden:
            kept.append(line)
    return "\n".join(kept)
