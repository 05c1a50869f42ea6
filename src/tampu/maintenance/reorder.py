"""The ranker: finishes what a change of a queue's ordering, or of the limits of its groups, began."""

from __future__ import annotations

import contextlib

from tampu.broker import reorder
from tampu.broker.core import Core
from tampu.engines.port import PollStatus
from tampu.model.errors import VersionConflict


class Reorderer:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen = -1
        self._waits = False

    def rank(self, told: PollStatus | None = None) -> None:
        """Rank what is due to be. Costs nothing when no settings have changed."""
        engine = self._core.engine
        told = told or engine.poll_status(())
        if told.revision == self._seen and not self._waits:
            return
        self._waits = False
        before = told.now_us - reorder.NOTICED_US
        for document, mark in reorder.marked(engine):
            if mark.since_us > before:
                self._waits = True
                continue
            self._core.drive(reorder.follow(document.tenant, document.name, ranks=mark.ranks))
            with contextlib.suppress(VersionConflict):  # changed again: its own time comes
                self._core.coalescer.submit(reorder.unmarking(document))
        self._seen = told.revision
