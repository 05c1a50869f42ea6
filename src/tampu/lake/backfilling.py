"""Days computed anew from bronze: after a change of how silver or gold count, or of objectives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING

from tampu.lake.state import CARRIED, EVENTS, GOLD, MESSAGES, SILVER, STAYS, State
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


def silver(work: Round, here: State, days: Sequence[date]) -> None:
    """Silver of these days out of all of bronze: a message's story may have begun long before."""
    from tampu.lake import silver as making

    target = here.position(EVENTS)
    spark = work.spark
    events = here.tables[EVENTS].read(spark)
    none = here.tables[CARRIED].read(spark).limit(0)
    with making.step(events, none, none, here.tables[MESSAGES].read(spark)) as step:
        for name, rows in (
            ("silver.attempts", step.attempts),
            ("silver.messages", step.messages),
            (STAYS, step.stays),
        ):
            began = time.monotonic()
            table = here.tables[name]
            chosen = rows.where(rows["day"].isin(list(days)))
            work.done(name, table.replace_days(chosen, days, work.mark(target)), began)
        began = time.monotonic()
        work.done(CARRIED, here.tables[CARRIED].overwrite(step.carried.coalesce(4), work.mark(target)), began)
