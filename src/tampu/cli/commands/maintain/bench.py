"""`bench`: measures the speed of a store on this disk, in a temporary folder."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tampu
from tampu.cli import output, parse
from tampu.cli.app import command, option
from tampu.cli.output import text
from tampu.cli.session import Session

_PAYLOAD = {"to": "ada@example.org", "text": "x" * 166}
_CALLERS = 32
Row = dict[str, Any]


def _rate(seconds: float, act: Callable[[], int]) -> float:
    """Items per second, calling ``act`` for this long, or until it has nothing left to do."""
    items, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds or items == 0:
        done = act()
        if not done:
            break
        items += done
    return items / max(time.perf_counter() - began, 1e-9)


def _batch(store: tampu.Store, size: int, seconds: float) -> dict[str, float]:
    """Rates of publish, claim and ack, each measured alone."""
    queue = f"batch{size}"
    claimed: list[list[tampu.Lease]] = []

    def claim() -> int:
        leases = store.claim(queue, limit=size, lease=600)
        if leases:
            claimed.append(leases)
        return len(leases)

    def ack() -> int:
        return len(store.settle([tampu.Ack(one) for one in claimed.pop()])) if claimed else 0

    rates = {"publish": _rate(seconds, lambda: len(store.publish_many(queue, [_PAYLOAD] * size)))}
    rates["claim"] = _rate(seconds, claim)
    rates["ack"] = _rate(seconds, ack)
    return rates


def _concurrent(store: tampu.Store, callers: int, seconds: float) -> float:
    """Messages per second of many threads, each of which publishes, claims and acks one message at a time."""
    stop = time.perf_counter() + seconds
    done = [0] * callers
    ready = threading.Barrier(callers + 1)

    def run(me: int) -> None:
        ready.wait()
        while time.perf_counter() < stop or not done[me]:
            store.publish("callers", _PAYLOAD)
            for lease in store.claim("callers", lease=600):
                store.ack(lease)
                done[me] += 1

    threads = [threading.Thread(target=run, args=(n,), name=f"caller-{n}", daemon=True) for n in range(callers)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    ready.wait()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def measure(url: str, seconds: float, advance: Callable[[float], None]) -> list[Row]:
    rows: list[Row] = []
    with tampu.open(url) as store:
        for size in (1, 100):
            for verb, rate in _batch(store, size, seconds).items():
                rows.append({"what": verb, "batch": size, "callers": 1, "per_second": round(rate, 1)})
                advance(1)
        rate = _concurrent(store, _CALLERS, seconds)
        rows.append({"what": "publish + claim + ack", "batch": 1, "callers": _CALLERS, "per_second": round(rate, 1)})
        advance(1)
    return rows


@command("bench", "Maintain")
def bench(
    session: Session,
    folder: Annotated[Path, option("--dir", "A folder on the disk to measure")] = Path(),
    seconds: Annotated[str, option("--seconds", "Duration of each measurement", metavar="TIME")] = "1",
) -> None:
    """Measure publish, claim and ack on this disk, with full durability. Removes its files afterwards."""
    each = parse.duration(seconds, "seconds")
    if not folder.is_dir():
        raise tampu.InvalidMessage(f"folder {folder} does not exist", field="dir")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tampu-bench-", dir=folder) as place,
            output.progress("measuring", 7) as advance,
        ):
            rows = measure(str(Path(place) / "bench.db"), each, advance)
    except PermissionError:
        raise tampu.Unavailable(f"no permission to write in {folder}", field="dir") from None
    columns = ("what", "batch", "callers", "messages/s")
    cells = ([row["what"], row["batch"], row["callers"], text(f"{row['per_second']:,.0f}", "bold")] for row in rows)
    document = {"payload_bytes": 200, "durability": "full", "results": rows}
    session.out.rows(document, columns, cells, right=columns[1:])
    session.out.note("each message 200 bytes, journaled, on disk with a full sync before the call returns")
