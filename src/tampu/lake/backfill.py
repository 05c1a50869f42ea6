"""Days computed anew from bronze: after a change of how silver or gold count, or of objectives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from tampu.lake.state import CARRIED, EVENTS, GOLD, MESSAGES, SILVER, WAITING, State
from tampu.model.errors import InvalidState, NotFound
from tampu.model.journal import Position

if TYPE_CHECKING:
    from tampu.lake.rounds import Round


def check(here: State) -> Position:
    """Only tables that are all at the same position can be recomputed; where that is."""
    have = here.position(EVENTS)
    if not any(have.values()):
        raise NotFound(f"the lake {here.lake.uri} is empty", hint="run tampu pipeline run first")
    if any(here.position(name) != have for name in (MESSAGES, *SILVER, *GOLD)):
        raise InvalidState("a run did not come to its end", hint="run tampu pipeline run once, then the backfill")
    return have


def silver(work: Round, days: Sequence[date]) -> None:
    """Silver of these days out of all of bronze: a message's story may have begun long before. Of messages that have
    not ended, the days that were let go are carried."""
    began = time.monotonic()
    target = work.here.position(EVENTS)
    sources = [*work.sources(EVENTS, "new"), *work.sources(MESSAGES, "bodies"), *work.sources(CARRIED, "old")]
    found = work.walked(sources, work.rows_by_tenant({}), work.targets(SILVER), days)
    for name, files in found.items():
        table, mark = work.table(name), work.mark(target)
        if name in (CARRIED, WAITING):
            table.overwrite(files, mark)
        else:
            table.replace_days(files, days, mark)
        work.done(name, files, began)
        began = time.monotonic()
