"""Care for a lake, without Spark: join small files, remove what no table names any more, let old days go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby

import msgspec

from tampu.lake import lineage, state
from tampu.lake.storage import parquet
from tampu.lake.storage.files import DataFile
from tampu.lake.storage.lake import Lake, LakeTable
from tampu.lake.storage.snapshots import Snapshot, exactly
from tampu.model.errors import InvalidConfig, VersionConflict

TARGET = 128 << 20
"""Files are joined up to about this size."""
LEAST_RETAIN_HOURS = 1
"""A run under way has files that no log names yet: nothing younger is removed."""


class Care(msgspec.Struct, frozen=True):
    """What was done for one table."""

    table: str
    files: int
    """Joined or removed."""
    into: int = 0
    bytes: int = 0
    rows: int = 0
    """Let go."""


def tables(lake: Lake) -> Iterator[LakeTable]:
    for name in (*state.ALL, state.AUDIT):
        yield state.table(lake, name)
    yield from map(lake.table, lake.own_tables().values())
    yield lineage.table(lake)


def compact(lake: Lake, *, target: int = TARGET) -> list[Care]:
    """Join small files of the same day and tenant. Readers and runs may go on meanwhile; what they changed is left."""
    there = []
    for table in tables(lake):
        found = table.find()
        if found is not None:
            found.check_version()  # files are written anew, with the columns that we know
            there.append(table)
    return [care for table in there if (care := _compact(table, target)).files]


def _compact(table: LakeTable, target: int) -> Care:
    joined = into = size = 0
    for group in bundles(table.open().files(), target):
        found = table.open()
        new = list(_joined(found, group))
        try:
            found.commit(new, None, drop=exactly(file.path for file in group), tidy=True)
        except VersionConflict:
            continue
        joined, into, size = joined + len(group), into + len(new), size + sum(file.size for file in group)
    return Care(table.spec.name, joined, into, size)


def bundles(known: Sequence[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Files to join: of one day and tenant, together about as large as wanted."""

    def part(file: DataFile) -> tuple[str, str]:
        return file.day or "", file.tenant or ""

    small = sorted((file for file in known if file.size < target // 2), key=lambda file: (part(file), file.path))
    for _, some in groupby(small, key=part):
        bundle: list[DataFile] = []
        for file in some:
            if bundle and sum(one.size for one in bundle) + file.size > target:
                if len(bundle) > 1:
                    yield bundle
                bundle = []
            bundle.append(file)
        if len(bundle) > 1:
            yield bundle


def _joined(found: Snapshot, group: Sequence[DataFile]) -> Iterator[DataFile]:
    target = found.table.target
    return parquet.write_batches(target, "compact", parquet.read_batches(target.place, target.schema, group))


def vacuum(lake: Lake, *, retain_hours: int, dry_run: bool = False) -> list[Care]:
    """Remove files that no version younger than this needs, and those that a run which died left behind."""
    if retain_hours < LEAST_RETAIN_HOURS:
        raise InvalidConfig(
            f"retain is {retain_hours} h", field="retain", hint="at least 1h: a run under way needs its files"
        )
    done = []
    for table in tables(lake):
        there = table.find()
        if there is None:
            continue
        delta = there.delta
        gone = delta.vacuum(retain_hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
        if not dry_run:
            delta.cleanup_metadata()
            # Vacuum tells of itself in the log, where a run's own entry must never follow on one that power loss tears.
            table.settle(table.open().version, since=there.version + 1)
        if gone:
            done.append(Care(table.spec.name, len(gone)))
    return done


def drop_days(lake: Lake, before: date, *, dry_run: bool = False) -> list[Care]:
    """Let the rows of days before this one go, from every table that has days. Their files go with a later vacuum."""
    done = []
    for table in tables(lake):
        # What waits, waits on whatever day: that table has no days to speak of.
        found = table.find() if table.parted and table.spec.name != state.WAITING else None
        if found is None:
            continue
        old = [file for file in found.files() if file.day is not None and file.day < before.isoformat()]
        if old:
            if not dry_run:
                found.commit([], None, drop=exactly(file.path for file in old))
            done.append(
                Care(table.spec.name, len(old), 0, sum(file.size for file in old), sum(file.rows for file in old))
            )
    return done
