"""A Delta table as an Arrow dataset that may be filtered.

deltalake's own `to_pyarrow_dataset` says of every file what its entry in the log says of its columns, and of a column
without statistics that it is ``>= null``: a filter on that column then passes over every file, and rows are missing
without a word. Delta allows entries with statistics of some columns only, and the lake's files are such. So files are
distinguished by their partition alone; inside them, Parquet's own statistics pass over what does not match.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable


def dataset(delta: DeltaTable) -> ds.Dataset:
    """The rows of the version that ``delta`` stands at."""
    source: Any = delta.to_pyarrow_dataset()
    names = delta.metadata().partition_columns
    fragments = []
    for fragment in source.get_fragments():
        keys = ds.get_partition_keys(fragment.partition_expression)
        where = [pc.field(n).is_null() if keys.get(n) is None else pc.field(n) == keys[n] for n in names]
        expression = functools.reduce(operator.and_, where) if where else None
        fragments.append(source.format.make_fragment(fragment.path, source.filesystem, expression))
    return ds.FileSystemDataset(fragments, source.schema, source.format, source.filesystem)
