"""The embedded engine: one SQLite file in WAL mode, shared by any number of processes; or memory.

The rules are those of all SQL databases: `tampu.engines.sql`. Here are `database.py`, which runs their statements and
`operations.py`; `engine.py` and `commit.py`, which run and write a commit; and in `verbs` faster ways for plain
messages. `files.py` opens and migrates the file, `peers.py` holds the locks and wake-ups between processes.
"""

from tampu.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
