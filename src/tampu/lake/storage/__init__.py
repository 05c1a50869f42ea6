"""Delta tables of a lake, on disk or in an object store: files, versions, and how Spark and Arrow read them.

Not here: which tables there are (`tables/`), and what a run writes into them.
"""

from tampu.lake.storage.lake import Lake, LakeTable

__all__ = ["Lake", "LakeTable"]
