"""Units on engines with tables: a refused one costs the others one more try, not their shared commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tampu.engines.port import Call, Claim, Together
from tampu.engines.units import Refused, run_apart
from tampu.model.errors import LeaseLost


def test_units_that_are_not_refused_share_the_next_commit() -> None:
    calls: list[Call] = [*(Together(str(n), []) for n in range(5)), Claim("claims", [], 1, None)]
    commits: list[list[str]] = []

    def run(part: Sequence[Call]) -> list[Any]:
        commits.append([call.tenant for call in part if isinstance(call, Together | Claim)])
        return [f"reply of {name}" for name in commits[-1]]

    refused = Refused({1: LeaseLost("lost"), 3: LeaseLost("lost")})
    replies = run_apart(run, lambda call: run([call])[0], calls, refused)
    assert commits == [["0", "2", "4", "claims"], ["1"], ["3"]]
    assert replies == [f"reply of {name}" for name in ("0", "1", "2", "3", "4", "claims")]
