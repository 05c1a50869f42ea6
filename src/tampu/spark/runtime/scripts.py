"""Small wrapper scripts that Spark starts instead of a program, in the user's cache."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def keep(name: str, text: str) -> Path:
    """The path of a script with this text; writes it if it is missing or different."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = cache / "tampu" / name
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        new = script.with_name(f"{script.name}.{os.getpid()}")
        new.write_text(text)
        new.chmod(new.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        new.replace(script)
    return script
