"""Completes a change of a queue's ordering or group limits; see `tampu.broker.admin.reorder`."""

from __future__ import annotations

import contextlib

from tampu.broker.admin import reorder
from tampu.broker.core import Core
from tampu.engines.port import PollStatus
from tampu.model.errors import VersionConflict


class Reorderer:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._revision = -1
        self._pending = False

    def rank(self, status: PollStatus | None = None) -> None:
        """Complete changes that are old enough. Costs nothing if no settings have changed."""
        engine = self._core.engine
        status = status or engine.poll_status(())
        if status.revision == self._revision and not self._pending:
            return
        self._pending = False
        before = status.now_us - reorder.NOTICED_US
        for document, mark in reorder.marked(engine):
            if mark.since_us > before:
                self._pending = True
                continue
            self._core.drive(reorder.follow(document.tenant, document.name, ranks=mark.ranks))
            with contextlib.suppress(VersionConflict):  # changed again: the new mark is handled later
                self._core.coalescer.submit(reorder.unmarking(document))
        self._revision = status.revision
