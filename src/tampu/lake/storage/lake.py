"""A lake and its tables, on disk or in an object store: Delta tables without jars, through delta-rs.

Here a table is made, opened, given new columns, and mended after a loss of power. What one version of it holds, and how
the next one comes about, is in `snapshots`; how Spark reads and writes it, in `frames`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tampu.lake.storage import files
from tampu.lake.storage.error_text import storage_error
from tampu.lake.storage.files import Place
from tampu.lake.storage.parquet import Target
from tampu.lake.storage.snapshots import VERSION, Snapshot
from tampu.lake.storage.urls import local_path, resolved, storage_options
from tampu.lake.tables import BY_NAME, LINEAGE, PARTITION_BY, Table
from tampu.lake.tables.schema import NAME, OURS
from tampu.model.errors import InvalidConfig, NotFound

KEY = "tampu.key"
"""Property of a user's table: its key."""
EXPECT = "tampu.expect"
"""Property of a user's table: its expectations."""
OWN = "tampu.tables"
"""Property of the lineage: the names of users' tables."""
_SPARK = "spark."
"""Options that begin so are for us; the others reach delta-rs."""


class Lake:
    def __init__(self, path: str | Path, options: Mapping[str, str] | None = None, *, travels: bool = True) -> None:
        """Options that travel reach executors inside the plan; they must not be secrets."""
        options = dict(options or {})
        text = str(path)
        if not text:
            raise InvalidConfig("the lake has no path", field="lake", hint="for example jobs.lake or s3://bucket/lake")
        local = local_path(text)
        self.uri = str(local.absolute()) if local is not None else text.rstrip("/")
        self.local = local.absolute() if local is not None else None
        given = {name: value for name, value in options.items() if not name.startswith(_SPARK)}
        self.options = storage_options(given) if travels else given
        self.scheme = options.get("spark.scheme")
        """With it Spark's own Parquet reader is used for a lake that is elsewhere: s3a, abfss, gs …"""
        self.format = options.get("spark.format", "parquet")
        """``delta``: Spark reads the tables through its own Delta Lake, where the cluster has the jars."""
        if self.format not in ("parquet", "delta"):
            raise InvalidConfig(
                f"a lake cannot be read as {self.format}: its tables are Delta tables",
                field="format",
                hint="parquet (the default, without any jar), or delta (by the jars of the cluster)",
            )

    def secrets(self) -> dict[str, str]:
        """The options with what the environment knows; they stay in this process."""
        return resolved(self.options)

    def table(self, table: str | Table, *, parted: bool = True) -> LakeTable:
        spec = table if isinstance(table, Table) else BY_NAME.get(table) or self.own_tables()[table]
        return LakeTable(self, spec, parted=parted)

    def present(self) -> list[str]:
        """The tables that there are."""
        return [*(name for name in BY_NAME if self.table(name).exists()), *self.own_tables()]

    def own_names(self) -> list[str]:
        """The names of users' tables."""
        noted = self.table(LINEAGE, parted=False).find()
        names = json.loads((noted.property(OWN) if noted is not None else None) or "[]")
        return [name for name in names if NAME.fullmatch(name) and name.partition(".")[0] not in OURS]

    def own_tables(self) -> dict[str, Table]:
        """Users' tables as the lake knows them: without their functions."""
        made = {}
        for name in self.own_names():
            found = self.table(Table(name, 0, "", (), pa.schema([]))).find()
            if found is not None:
                key = tuple(json.loads(found.property(KEY) or "[]"))
                about = found.delta.metadata().description or ""
                expect = json.loads(found.property(EXPECT) or "{}")
                made[name] = Table(name, found.schema_version(), about, key, found.arrow_schema(), expect=expect)
        return made


class LakeTable:
    def __init__(self, lake: Lake, spec: Table, *, parted: bool = True) -> None:
        self.lake = lake
        self.spec = spec
        self.parted = parted
        self.uri = f"{lake.uri}/{spec.path}"
        self.place = Place(self.uri, lake.options)

    @property
    def parts(self) -> list[str]:
        return list(PARTITION_BY) if self.parted else []

    @property
    def target(self) -> Target:
        """For those who write its files."""
        return Target(self.spec.name, self.place, self.spec.schema, self.parted)

    # -- being there

    def exists(self) -> bool:
        return self.find() is not None

    def create(self, properties: Mapping[str, str] | None = None) -> Snapshot:
        """Open the table, made or given its new columns where needed."""
        from deltalake import DeltaTable

        self._mend()
        found = self.find()
        if found is None:
            if self.place.local is not None:
                files.make_folders(self.place.local)
            DeltaTable.create(
                self.uri,
                schema=self.spec.schema,
                mode="ignore",
                partition_by=self.parts or None,
                name=self.spec.name,
                description=self.spec.about,
                configuration={VERSION: str(self.spec.version), **(properties or {})},
                storage_options=self.lake.secrets() or None,
                raise_if_key_not_exists=False,
            )
            self.settle(0)
            found = self.open()
        found.check_version()
        if found.schema_version() == self.spec.version:
            return found
        # Columns of a newer version of ours are added; nothing else ever changes.
        return found.add_columns(self.spec.schema).set_properties({VERSION: str(self.spec.version)})

    def open(self) -> Snapshot:
        """The table as it is now."""
        found = self.find()
        if found is None:
            raise NotFound(
                f"the lake {self.lake.uri} has no table {self.spec.name}", hint="make it with: tampu pipeline run"
            )
        return found

    def find(self) -> Snapshot | None:
        """The table as it is now, if there is one."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self.place.local is not None and not (self.place.local / "_delta_log").is_dir():
            return None
        try:
            return Snapshot(self, DeltaTable(self.uri, storage_options=self.lake.secrets() or None))
        except TableNotFoundError:
            return None
        except OSError as error:
            failure = storage_error(error, f"is {self.lake.uri} there, and are the credentials right?")
            if failure is None:
                raise
            raise failure from error

    def _mend(self) -> None:
        """Entries that a loss of power left half written were never reported to the queue: they are set aside."""
        if self.place.local is None:
            return
        log = self.place.local / "_delta_log"
        for entry in sorted(log.glob("[0-9]*.json"), reverse=True):
            if _is_whole(entry):
                return
            entry.rename(entry.with_suffix(".torn"))
            files.fsync_path(log)

    def settle(self, version: int, since: int | None = None) -> None:
        """What the log says up to a version is on the disk when this returns."""
        if self.place.local is None:
            return
        log = self.place.local / "_delta_log"
        for number in range(version if since is None else max(since, 0), version + 1):
            for entry in (f"{number:020}.json", f"{number:020}.checkpoint.parquet"):
                if (log / entry).exists():
                    files.fsync_path(log / entry)
        if (log / "_last_checkpoint").exists():
            files.fsync_path(log / "_last_checkpoint")
        files.fsync_path(log)
        files.fsync_path(log.parent)


def _is_whole(entry: Path) -> bool:
    """Does a log entry have lines of JSON, and no others?"""
    lines = entry.read_bytes().splitlines()
    try:
        for line in lines:
            json.loads(line)
    except ValueError:
        return False
    return bool(lines)
