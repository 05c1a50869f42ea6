"""Reads the named SQL statements of an engine. Does not know what they do or how values are passed.

A file in `statements/` has the statements of one verb, in the order in which the verb runs them:

    -- name: select_queue_number
    -- Finds a queue by its name.
    -- Run by: queue registry
    -- In:  $1 tenant, $2 name
    -- Out: the queue's number
    SELECT q FROM tampu.queue WHERE tenant = $1::text AND name = $2::text

Comments before the first name are about the whole file. A statement without a complete header is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources

_NAME = re.compile(r"-- name: ([a-z][a-z0-9_]*)")
_REQUIRED = ("-- Run by: ", "-- In:  ", "-- Out: ")


def load(package: str) -> dict[str, str]:
    """All statements in a package's folder `statements`, by name."""
    folder = resources.files(package) / "statements"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return parse((file.name, file.read_text(encoding="utf-8")) for file in files)


def parse(files: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The statements of these (file name, text), by name and without headers."""
    found: dict[str, str] = {}
    for file, text in files:
        about, *blocks = re.split(r"^(?=-- name:)", text, flags=re.MULTILINE)
        if any(line and not line.startswith("--") for line in about.splitlines()):
            raise ValueError(f"{file}: there is SQL before the first `-- name:`; give it a name")
        for block in blocks:
            name, statement = _read(file, block)
            if name in found:
                raise ValueError(f"{file}: there are two statements named {name}; rename one of them")
            found[name] = statement
    return found


def _read(file: str, block: str) -> tuple[str, str]:
    lines = block.splitlines()
    end = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header, statement = lines[:end], "\n".join(lines[end:]).strip()
    match = _NAME.fullmatch(header[0])
    if match is None:
        raise ValueError(f"{file}: {header[0]!r} is not `-- name: ` and a name in lower case")
    for start in _REQUIRED:
        if sum(line.startswith(start) and len(line) > len(start) for line in header) != 1:
            raise ValueError(f"{file}: the header of {match[1]} needs one line {start.strip()!r} that says something")
    if not statement:
        raise ValueError(f"{file}: {match[1]} has no statement below its header")
    return match[1], statement
