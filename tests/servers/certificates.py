"""A certificate of its own making, for servers that take encrypted connections."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """(certificate, key) for 127.0.0.1 or another name, good for a day; nobody vouches for it but itself."""
    if shutil.which("openssl") is None:
        raise RuntimeError("no openssl on this machine: install the Debian package openssl")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=tampu",
         "-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
