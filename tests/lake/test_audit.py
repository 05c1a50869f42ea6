"""The audit trail in the lake: each record once, also one that comes late, whoever died and whoever reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tampu
from tampu.broker import access, audit
from tampu.engines.port import PutDocument
from tampu.lake import maintenance
from tampu.lake.audit import new_records
from tampu.lake.storage import Lake, parquet
from tampu.lake.storage.snapshots import Mark
from tampu.model.times import SECOND, moment
from tampu.stores.open_store import open_store
from tests.server.web import Web
from tests.servers.http import Stall

HOUR = 3600 * SECOND
TENANTS = ("default", "acme")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, tampu.Store]]:
    url = tmp_path / "jobs.db"
    found = {tenant: tampu.open(url, tenant=tenant, actor="ada", maintenance=False) for tenant in TENANTS}
    yield found
    for store in found.values():
        store.close()


class Trail:
    """The table, and runs that bring it what is new."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.run = url, 0
        self.table = Lake(folder / "jobs.lake").table("bronze.audit")
        self.table.create()

    def bring(self, *, die: bool = False) -> int:
        self.run += 1
        known = self.table.open()
        with open_store(self.url) as store:
            rows, newest = new_records(store, known, "lake:main", TENANTS, "main-1")
        new = list(parquet.write_batches(self.table.target, "t", rows))
        if not die:
            known.commit(new, Mark("lake:main", self.run, {"0": self.run, **newest}))
        return sum(file.rows for file in new)

    def rows(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = self.table.open().arrow().to_table().sort_by("id").to_pylist()
        return found


def late(store: tampu.Store, us: int) -> str:
    """A record of another process that is stored only now."""
    name = f"{audit.name_at(us)}-00000000-late"
    record = audit.StoredRecord(us, "bob", "queue.purge", "orders")
    access.engine(store).run([PutDocument(audit.KIND, store.tenant, name, msgspec.json.encode(record))])
    return name


def test_each_record_comes_once_also_one_that_is_late_or_of_a_run_that_died(
    stores: dict[str, tampu.Store], tmp_path: Path
) -> None:
    trail = Trail(tmp_path, str(tmp_path / "jobs.db"))
    assert trail.bring() == 0
    stores["default"].queues.put("orders", lease=60)
    stores["default"].queues.put("orders", lease=90)
    stores["acme"].queues.put("orders", lease=30)
    now = access.engine(stores["acme"]).now()
    old = late(stores["acme"], now - 400 * HOUR)
    assert trail.bring(die=True) == 4
    assert (trail.bring(), trail.bring()) == (4, 0)
    mine = [row for row in trail.rows() if row["tenant"] == "default"]
    records = list(stores["default"].audit())
    assert [(row["id"], row["at"], row["actor"]) for row in mine] == [(one.id, one.at, "ada") for one in records]
    assert [(row["before"], row["after"]) for row in mine] == [
        ("{}", '{"lease":60.0}'),
        ('{"lease":60.0}', '{"lease":90.0}'),
    ]
    assert {(row["action"], row["target"], row["day"]) for row in mine} == {
        ("queue.config", "orders", records[0].at.date())
    }

    names = {late(stores["default"], now - hours * HOUR) for hours in (1, 20)}
    stores["default"].queues.put("orders", lease=120)
    assert (trail.bring(), trail.bring()) == (3, 0)
    ids = [row["id"] for row in trail.rows()]
    assert len(ids) == len(set(ids)) == 7
    assert names <= set(ids)

    long_ago = late(stores["acme"], now - 50 * HOUR)
    for tenant in TENANTS:
        late(stores[tenant], now + 30 * HOUR)  # the clock was ahead
    assert (trail.bring(), trail.bring()) == (2, 0), "what is more than a day late is not found"
    stores["acme"].queues.put("orders", lease=45)
    assert trail.bring() == 1
    assert long_ago not in {row["id"] for row in trail.rows()}
    assert maintenance.drop_days(trail.table.lake, moment(now - 200 * HOUR).date())
    assert trail.bring() == 0
    assert old not in {row["id"] for row in trail.rows()}, "days that were let go do not come back"


def test_a_server_gives_it_to_an_administrator_of_all_tenants(
    stores: dict[str, tampu.Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores["acme"].queues.put("orders", lease=30)
    served = Stall(url=str(tmp_path / "jobs.db"), key_file=tmp_path / "key", maintenance=False)
    try:
        trail = Trail(tmp_path, served.url)
        web = Web(served.url, served.token)
        for token in (web.key("operate", all_tenants=True), web.key("admin")):
            monkeypatch.setenv("TAMPU_TOKEN", token)
            assert trail.bring() == 0
        assert caplog.text.count("the audit trail is left out") == 2
        monkeypatch.setenv("TAMPU_TOKEN", served.token)
        assert trail.bring() > 0
        assert "acme" in {row["tenant"] for row in trail.rows()}
        assert trail.bring() == 0
    finally:
        served.stop()
