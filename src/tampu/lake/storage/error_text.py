"""What the libraries under the lake say at length, in a line and as an error of ours."""

from __future__ import annotations

import errno
import re

from tampu.model.errors import StorageError, StorageFull, Unavailable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FULL = (errno.ENOSPC, errno.EDQUOT)


def first_line(error: Exception) -> str:
    """What an error says, up to where it begins to draw."""
    text = str(error).partition("\nLINE ")[0].partition("\n\n")[0]
    return " ".join(_COLOURS.sub("", text).split())[:500] or type(error).__name__


def storage_error(error: OSError, hint: str | None) -> StorageError | None:
    """An error of the lake's storage that may pass, as one of ours; None for one that will not.

    The store's libraries raise OSError without a number for whatever an object store answers, or does not.
    """
    if error.errno is None:
        return Unavailable(f"the lake cannot be reached: {first_line(error)}", hint=hint)
    if error.errno in _FULL:
        return StorageFull(f"no room for the lake: {first_line(error)}", hint=hint)
    return None
