"""Arrow access to stores, for Spark and the lake: snapshots of messages, the journal, loads. A package per engine."""
