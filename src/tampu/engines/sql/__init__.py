"""The rules that SQLite, PostgreSQL and MariaDB share: every verb in Python, over statements that are called by name.

An engine brings its driver (`db.Driver`, `db.Db`), its tables, and a statement for every name used here, with the same
parameters and result columns. Nothing in this package knows which database it runs on.
"""
