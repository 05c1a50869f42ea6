"""The Lua scripts: one file per operation, in a folder per verb; the common parts it needs are put in front of it."""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources
from importlib.resources.abc import Traversable

_NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)
_CONTAINS = re.compile(r"^-- contains: (.+)$", re.MULTILINE)


_FOLDER = resources.files(__package__) / "lua"
_COMMON = "common"


@functools.cache
def files() -> dict[str, Traversable]:
    """The file of every operation, by its name."""
    found: dict[str, Traversable] = {}
    for folder in _FOLDER.iterdir():
        if folder.is_dir() and folder.name != _COMMON:
            for file in folder.iterdir():
                name = file.name.removesuffix(".lua")
                assert name not in found, f"there are two scripts named {name}; rename one of them"
                found[name] = file
    return found


@functools.cache
def source(name: str) -> str:
    """The whole text of a script."""
    text = files()[name].read_text(encoding="utf-8")
    needs = _NEEDS.search(text)
    assert needs is not None, f"{name}.lua does not say what it needs"
    parts = [(_FOLDER / _COMMON / f"{part}.lua").read_text(encoding="utf-8") for part in needs[1].split()]
    contains = _CONTAINS.search(text)
    inside = [_function(other) for other in contains[1].split()] if contains else []
    return "\n".join([*(_simple(part) for part in parts), *inside, _simple(text)])


def _function(name: str) -> str:
    """A whole script as a function of another one, with its own keys and arguments."""
    return f"local function {name}(KEYS, ARGV)\n{source(name)}\nend"


def _simple(text: str) -> str:
    """Without the lines that only explain: the server keeps every script in memory."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))


@functools.cache
def digest(name: str) -> str:
    """What EVALSHA calls it by."""
    known = hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()
    _sources[known] = name
    return known


_sources: dict[str, str] = {}


def by_digest(known: str) -> str:
    """The text of a script that was called by its digest."""
    return source(_sources[known])
