"""The lake: tables that Spark keeps from the journal and the ended messages, and what reads them.

Not here: how a store is read (`stores/`), Spark's data source (`spark/`), and the commands (`cli/lake/`).
"""
