"""Suggestions for names that are probably misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 10_000
"""Names that are compared; comparing more would take longer than the error is worth."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one; None if none is like it."""
    names = sorted({one for one in known if one != name})[:_MOST]
    found = difflib.get_close_matches(name, names, n=1)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error text: ``; did you mean emails?``, or nothing."""
    found = closest(name, known)
    return f"; did you mean {found}?" if found else ""
