"""Makes the environments of the peers in `build/peers`, from locks with hashes; later runs find them there."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PLACE = ROOT / "build" / "peers"
_NODE = Path(__file__).parent / "node"


def python(name: str) -> Path:
    """The interpreter that has what requirements/peers-NAME.txt lists."""
    lock = ROOT / "requirements" / f"peers-{name}.txt"
    folder = _PLACE / f"{name}-{_fingerprint(lock.read_bytes(), sys.version.encode())}"
    found = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"making the environment of {lock.name} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run(
            [found, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--require-hashes", "-r", lock],
            check=True,
        )
        ready.touch()
    return found


def node() -> Path:
    """A folder with node_modules as bench/peers/node/package-lock.json lists them."""
    if shutil.which("npm") is None:
        raise RuntimeError("no node on this machine: install the Debian packages nodejs and npm")
    folder = _PLACE / f"node-{_fingerprint((_NODE / 'package-lock.json').read_bytes())}"
    subprocess.run([ROOT / "tools" / "node-packages", _NODE, folder], check=True)
    return folder


def _fingerprint(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
