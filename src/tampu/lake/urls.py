"""The url of a store as every process can use it, and the lake that belongs to it."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(url: str) -> str:
    """Executors may have another working folder."""
    if url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        path, mark, query = url.removeprefix("sqlite:///").partition("?")
        return f"sqlite:///{Path(path).absolute()}{mark}{query}"
    return url if ":" in url.split("/", 1)[0] else str(Path(url).absolute())


def default_lake(url: str) -> str:
    """TAMPU_LAKE, or beside the file: jobs.db has jobs.lake."""
    given = os.environ.get("TAMPU_LAKE")
    if given:
        return given
    path = url.partition("?")[0]
    path = path.removeprefix("sqlite:///") if path.startswith("sqlite:") else path
    if "://" in path or path.startswith("env:"):
        return "tampu.lake"
    return str(Path(path).with_suffix(".lake"))
