"""The Lua scripts: one file per operation, in a folder per verb. The common parts a script needs come before it."""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources
from importlib.resources.abc import Traversable

_NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)
_CONTAINS = re.compile(r"^-- contains: (.+)$", re.MULTILINE)


_FOLDER = resources.files("tampu.engines.redis") / "lua"
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
    """The full source of a script."""
    text = files()[name].read_text(encoding="utf-8")
    match = _NEEDS.search(text)
    assert match is not None, f"{name}.lua has no '-- needs:' line"
    parts = [(_FOLDER / _COMMON / f"{part}.lua").read_text(encoding="utf-8") for part in match[1].split()]
    match = _CONTAINS.search(text)
    inside = [_function(other) for other in match[1].split()] if match else []
    return "\n".join([*(_without_comments(part) for part in parts), *inside, _without_comments(text)])


def _function(name: str) -> str:
    """A script as a function inside another one, with its own keys and arguments."""
    return f"local function {name}(KEYS, ARGV)\n{source(name)}\nend"


def _without_comments(text: str) -> str:
    """Saves memory: the server keeps every script."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))


@functools.cache
def digest(name: str) -> str:
    """The SHA-1 that EVALSHA takes."""
    found = hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()
    _sources[found] = name
    return found


_sources: dict[str, str] = {}


def by_digest(digest: str) -> str:
    """The source of the script with this digest."""
    return source(_sources[digest])
