"""What keeps the tables small: hot tables are vacuumed as messages pass, not only when autovacuum comes.

Autovacuum visits a table once a minute at best; a queue can fill it with dead rows many times over in between. Measured
on a run of two million messages: with autovacuum alone a quarter of it fell to 7 k/s and the table grew to 650 MB;
vacuumed every 100,000 messages it held 24 to 32 k/s and 68 to 86 MB.

A backlog that is only drained leaves its dead rows at the front of the index, where every claim steps over them. So the
index of what is ready is vacuumed when that stepping has cost about as much as a vacuum does.
"""

from __future__ import annotations

import logging
import threading
import time

import psycopg

from tampu.engines.postgres import connect
from tampu.model.errors import TampuError

log = logging.getLogger("tampu")
VACUUM_EVERY = 100_000
"""Messages moved by this process between two rounds."""
STEP_SECONDS = 6e-9
"""What a claim pays for a dead entry at the front of the index; measured."""
SHORTEST_SECONDS = 0.02
"""A vacuum is taken to cost at least this."""
_HOT = ("ready", "leased", "claim", "delayed", "tally", "journal_new")


class Vacuum:
    """Notices when it is time, and vacuums in a thread of its own."""

    def __init__(self, place: connect.Target) -> None:
        self._place = place
        self._moved = 0
        self._every = VACUUM_EVERY
        self._thread: threading.Thread | None = None
        self._may = True
        self._dead = 0
        """Messages taken by this process since `ready` was vacuumed."""
        self._stepped = 0
        """Dead entries that its claims have stepped over since then."""
        self._seconds = SHORTEST_SECONDS
        """What vacuuming `ready` took the last time."""

    def moved(self, messages: int, taken: int = 0) -> None:
        """A commit made so many messages ready, and took so many."""
        self._moved += messages
        if taken:
            self._stepped += self._dead
            self._dead += taken
        if not self._may or (self._thread is not None and self._thread.is_alive()):
            return
        if self._moved >= self._every:
            self._moved = 0
            self._start(_HOT)
        elif self._stepped * STEP_SECONDS >= self._seconds:
            self._start(("ready",))

    def _start(self, tables: tuple[str, ...]) -> None:
        self._dead = self._stepped = 0
        self._thread = threading.Thread(target=self._vacuum, args=(tables,), name="tampu-vacuum", daemon=True)
        self._thread.start()

    def _vacuum(self, tables: tuple[str, ...]) -> None:
        try:
            db = connect.connect(self._place)
        except (psycopg.Error, TampuError) as error:
            log.debug("no vacuum this time: %s", error)
            return
        notices: list[str] = []
        db.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        try:
            for table in tables:
                began = time.monotonic()
                # One that somebody else is vacuuming is left to them; nobody waits for the file to shrink.
                options = "(SKIP_LOCKED, TRUNCATE false, INDEX_CLEANUP true)"
                db.connection.execute(f'VACUUM {options} "{self._place.schema}".{table}')
                if table == "ready":
                    self._seconds = max(SHORTEST_SECONDS, time.monotonic() - began)
            # What an open transaction keeps is not looked at again and again: as many must have come as are there.
            self._every = max(VACUUM_EVERY, min(10 * VACUUM_EVERY, int(db.value("count_dead_rows"))))
        except psycopg.Error as error:
            log.debug("no vacuum this time: %s", error)
        finally:
            db.connection.close()
        # A role that does not own the tables is told so by a warning, not by an error: autovacuum serves alone then.
        self._may = not any("skipping" in text and "only" in text for text in notices)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join()
