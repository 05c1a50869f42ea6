"""Claims that want the same are one call to the engine, and everybody gets a share of their own."""

from collections.abc import Sequence
from typing import Any

from tampu.engines.merged_claims import MOST, run_joined
from tampu.engines.port import AGAIN, Call, Claim, Publish, QueueClaim
from tampu.model.errors import Unavailable

JOBS = QueueClaim("jobs", 30)


class Engine:
    """Hands out numbers, as many as it has."""

    def __init__(self, there: int, reply: Any = None) -> None:
        self._numbers = list(range(there))
        self._reply = reply
        self.limits: list[int | None] = []

    def run(self, calls: Sequence[Call]) -> list[Any]:
        self.limits += [call.limit if isinstance(call, Claim) else None for call in calls]
        return [self._one(call) for call in calls]

    def _one(self, call: Call) -> Any:
        if self._reply is not None or not isinstance(call, Claim):
            return self._reply
        taken, self._numbers = self._numbers[: call.limit], self._numbers[call.limit :]
        return taken


def test_claims_alike_are_one_and_the_first_callers_get_the_first_messages() -> None:
    engine = Engine(4)
    calls = [Claim("t", (JOBS,), 2, "w"), Claim("t", (JOBS,), 1, "w"), Claim("t", (JOBS,), 3, "w")]
    assert run_joined(engine.run, calls) == [[0, 1], [2], [3]]
    assert engine.limits == [6]


def test_what_is_not_alike_stays_apart() -> None:
    limited, other = QueueClaim("jobs", 30, max_in_flight=5), QueueClaim("jobs", 60)
    apart: list[Call] = [
        Claim("t", (JOBS,), 1, "w"),
        Claim("t", (JOBS,), 1, "another"),
        Claim("another", (JOBS,), 1, "w"),
        Claim("t", (other,), 1, "w"),
        Claim("t", (JOBS, other), 1, "w"),
        Claim("t", (limited,), 1, "w"),
        Claim("t", (limited,), 1, "w"),
        Publish("t", "jobs", ()),
    ]
    engine = Engine(100)
    assert run_joined(engine.run, apart) == [[0], [1], [2], [3], [4], [5], [6], None]
    assert engine.limits == [1] * 7 + [None]


def test_a_joined_claim_stays_short() -> None:
    engine = Engine(2 * MOST)
    run_joined(engine.run, [Claim("t", (JOBS,), 300, "w")] * 7)
    assert engine.limits == [900, 900, 300]
    assert max(limit or 0 for limit in engine.limits) <= MOST


def test_what_is_no_list_of_leases_goes_to_all_alike() -> None:
    for reply in (AGAIN, Unavailable("gone")):
        calls = [Claim("t", (JOBS,), 1, "w"), Claim("t", (JOBS,), 1, "w")]
        assert run_joined(Engine(0, reply).run, calls) == [reply, reply]
