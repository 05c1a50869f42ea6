"""Loads an object by name, as users write it in commands and settings: ``package.module:name``."""

from __future__ import annotations

import importlib
import operator
import sys
from pathlib import Path
from typing import Any


def import_string(text: str, default: str = "") -> Any:
    """The object; without a name, the one called ``default``. Modules in the current folder are found too."""
    module, _, name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return operator.attrgetter(name or default)(importlib.import_module(module))
