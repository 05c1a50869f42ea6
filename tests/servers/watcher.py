"""Servers that do not outlive the tests: each has a watcher, which ends it when the process that started it is gone."""

from __future__ import annotations

import subprocess


class Watcher:
    """Ends a process, by its id, unless it is dismissed before we are gone: its input ends with us."""

    def __init__(self, pid: int) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f"read _; kill -9 {pid}"],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
        )  # fmt: skip

    def dismiss(self) -> None:
        self._process.kill()
        self._process.communicate()
