"""What engines on SQL databases have in common: all that is decided in Python, over statements by name.

An engine brings its driver (`db.Driver`, `db.Db`), its tables, and for every statement that is named here a file with
the same contract: what goes in, what comes out. Nothing here knows which database it is.
"""
