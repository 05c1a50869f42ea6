"""``python -m bench.attack``: runs each attack while an honest client works, and prints a table of what it noticed.

``--quick`` makes the attacks small. ``--soak SECONDS`` repeats them all, and says whether time and memory stay flat.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.attack.attacks import ATTACKS
from bench.attack.target import Honest, Target


def run(target: Target, scale: float, out: Console) -> bool:
    """True if the server held in all attacks."""
    table = Table("attack", "held", "what came of it", "honest p50 ms", "p99 ms", "max ms", "failed", "memory MB")
    held = True
    for name, attack in ATTACKS.items():
        with Honest(target) as honest:
            try:
                ok, said = True, attack(target, scale)
            except (AssertionError, OSError) as error:  # also a stream that does not end
                ok, said = False, str(error)
        held = held and ok and target.process.poll() is None
        times = [f"{honest.percentile(share):.1f}" for share in (0.5, 0.99, 1.0)]
        table.add_row(name, "yes" if ok else "NO", said, *times, str(honest.failed), str(honest.memory >> 20))
    out.print(table)
    return held


def soak(target: Target, seconds: float, scale: float, out: Console) -> bool:
    """Attack all the time. Each round is a row: an honest client's times and the memory of the server stay flat."""
    table = Table("minute", "honest requests", "p50 ms", "p99 ms", "failed", "memory MB")
    began, held = time.monotonic(), True
    while time.monotonic() - began < seconds:
        with Honest(target) as honest:
            until = time.monotonic() + min(60.0, seconds)
            while time.monotonic() < until:
                for attack in ATTACKS.values():
                    try:
                        attack(target, scale)
                    except (AssertionError, OSError) as error:
                        held = False
                        out.print(f"not held: {error}")
        minute = f"{(time.monotonic() - began) / 60:.1f}"
        p50, p99 = (f"{honest.percentile(share):.1f}" for share in (0.5, 0.99))
        table.add_row(minute, str(len(honest.seconds)), p50, p99, str(honest.failed), str(target.memory >> 20))
    out.print(table)
    return held


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small attacks")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="repeat them all for this long")
    given = parser.parse_args()
    scale = 0.05 if given.quick else 1.0
    out = Console(width=200 if not sys.stdout.isatty() else None)
    with tempfile.TemporaryDirectory(prefix="tampu-attack-") as folder:
        target = Target(Path(folder))
        try:
            held = run(target, scale, out) if given.soak is None else soak(target, given.soak, 0.1 * scale, out)
        finally:
            target.stop()
    sys.exit(0 if held else 1)


main()
