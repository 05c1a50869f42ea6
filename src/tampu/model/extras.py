"""How to install an optional part of tampu, for hints of errors: from the package index, or from a clone."""

from __future__ import annotations

import functools
import urllib.parse
from pathlib import Path

from tampu.model.decoders import from_json

_read_origin = from_json(dict[str, object]).decode


def install(*extras: str) -> str:
    """The command that adds these parts: ``pip install 'tampu[client]'``."""
    clone = clone_of()
    names = ",".join(extras)
    return f"pip install 'tampu[{names}]'" if clone is None else f"pip install --editable '{clone}[{names}]'"


@functools.cache
def clone_of() -> Path | None:
    """The clone that this tampu runs from; None if it was installed from a package index, or from a wheel."""
    import importlib.metadata  # takes long, and is only for hints

    try:
        origin = importlib.metadata.distribution("tampu").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return _with_project(Path(__file__).parents[3])  # not installed at all: it is on the path
    found = _read_origin(origin) if origin else {}
    url = urllib.parse.urlsplit(str(found.get("url", "")))
    return _with_project(Path(urllib.parse.unquote(url.path))) if url.scheme == "file" and "dir_info" in found else None


def _with_project(place: Path) -> Path | None:
    return place if (place / "pyproject.toml").is_file() else None
