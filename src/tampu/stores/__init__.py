"""Arrow access to stores, for Spark and the lake: snapshots of messages, the journal, loads. A package per engine.

Not here: Spark. Everything runs in any Python process that has pyarrow.
"""
