"""Standard streams: closed ones, those that cannot encode every character, and questions to a person at a terminal."""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path
from typing import Any

import typer

import tampu

_HANDLER = "tampu.escape"
_SIMILAR = str.maketrans("·…░▒▓█✓", ".~-=+#*")
"""Our own symbols, and ASCII characters of the same width, so that columns stay aligned."""


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    refused = error.object[error.start : error.end].translate(_SIMILAR)
    return refused.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(_HANDLER, _escape)


def escape_unencodable(*streams: Any) -> None:
    """Write characters that a stream cannot encode as escapes, instead of raising."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def replace_closed() -> None:
    """Open /dev/null for each standard stream that was closed by the process that started this one.

    This also takes their file descriptors, so that the file of the store does not get one of them.
    """
    nothing = Path(os.devnull)
    if sys.stdin is None:
        sys.stdin = nothing.open(encoding="utf-8")
    if sys.stdout is None:
        sys.stdout = nothing.open("w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = nothing.open("w", encoding="utf-8")


def is_interactive() -> bool:
    """True if a person can answer: standard input is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str, effect: str) -> None:
    """Continue only if the user answers yes. In a script nobody can: then raise, and ``effect`` is the error text."""
    if not is_interactive():
        raise tampu.InvalidMessage(effect, field="yes", hint="confirm with --yes, or try --dry-run first")
    if not typer.confirm(question, err=True):
        raise typer.Abort
