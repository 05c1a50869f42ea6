"""The embedded engine: one SQLite file in WAL mode, shared by any number of processes; or memory.

`engine.py` runs commits, `commit.py` is one of them, `verbs.py` lists the file of each verb. `files.py` opens and
migrates the file, `peers.py` holds the locks and wake-ups between processes, `read.py` reads. Policy lives elsewhere.
"""

from tampu.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
