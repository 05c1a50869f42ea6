"""The streams of a process: one that was closed by whoever started it is stood in for."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def stand_in() -> None:
    """Nothing comes from a closed stream, and what is written there goes nowhere.

    Opened here they also have their own numbers again, before the store's file gets one of them.
    """
    nothing = Path(os.devnull)
    if sys.stdin is None:
        sys.stdin = nothing.open(encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = nothing.open("w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = nothing.open("w", encoding="utf-8")
