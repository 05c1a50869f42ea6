"""A store behind a server: the same store, but every queue is opened over HTTP.

The nodes run in this process, one with the store's clock and, when a test is live, one with the real one; both are on
the same file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tampu
from tampu.broker.core import Core
from tampu.broker.store import Store
from tests.conformance.harness import SERVED, Harness, Kit
from tests.servers.http import Stall


class ServedHarness(Harness):
    def __init__(self, kit: Kit, folder: Path) -> None:
        self._file = kit.url(folder)
        self._servers: dict[bool, Stall] = {}
        self._before = os.environ.get("TAMPU_TOKEN")
        super().__init__(kit, folder)

    @property
    def url(self) -> str:
        """Of the live server, if there is one."""
        return self._server(live=True in self._servers).url

    @url.setter
    def url(self, _file: str) -> None:
        """The store itself is not for the tests."""

    def _server(self, *, live: bool, maintenance: bool = False) -> Stall:
        found = self._servers.get(live)
        if found is None:
            clock = None if live else self.clock
            found = self._servers[live] = Stall(clock=clock, url=self._file, maintenance=maintenance)
            SERVED[found.url] = found.core
            os.environ["TAMPU_TOKEN"] = found.token
        return found

    def opening(self, *, live: bool = False) -> dict[str, Any]:
        return {"url": self._server(live=live, maintenance=live).url}

    def open(self, *, tenant: str = "default", maintenance: bool = False, live: bool = False) -> Store:
        server = self._server(live=live, maintenance=maintenance)
        queue = tampu.open(server.url, tenant=tenant)
        self._opened.append(queue)
        return queue

    def core(self) -> Core:
        return self._server(live=False).core

    def close(self) -> None:
        super().close()
        for server in self._servers.values():
            del SERVED[server.url]
            server.stop()
        self._servers.clear()
        if self._before is None:
            os.environ.pop("TAMPU_TOKEN", None)
        else:
            os.environ["TAMPU_TOKEN"] = self._before


def build(kit: Kit, folder: Path) -> Harness:
    return ServedHarness(kit, folder) if kit.served else Harness(kit, folder)
