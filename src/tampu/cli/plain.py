"""Streams that can not write every character, as in a terminal or a log that is not UTF-8: what is written instead."""

from __future__ import annotations

import codecs
import io
from typing import Any

_NAME = "tampu.plain"
_ALIKE = str.maketrans("·…░▒▓█✓", ".~-=+#*")
"""Our own signs, by others as wide, so that columns stay in line."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    refused = error.object[error.start : error.end].translate(_ALIKE)
    return refused.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(_NAME, _plain)


def never_refuse(*streams: Any) -> None:
    """What a stream has no character for is written as an escape, instead of ending the command."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)
