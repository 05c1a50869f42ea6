"""Where chance begins in a test: at the same point each time, unless one looks for new ones."""

import os
import random
import zlib

import pytest

FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
"""`make fuzz` looks at what nobody has looked at yet."""
OTHER_THREADS_DRAW = pytest.mark.filterwarnings(
    "ignore:Do not use the `random` module inside strategies:hypothesis.errors.HypothesisDeprecationWarning"
)
"""For tests beside which another library draws from `random` in a thread, as redis-py does when it connects again.

Hypothesis compares the state of `random` before and after a strategy, and blames the strategy. That tampu itself does
not draw is tested in tests/broker/test_chance.py.
"""


def seed_of(name: str) -> int:
    """TAMPU_SEED=n replays; pytest shows what is printed here when a test fails."""
    drawn = random.SystemRandom().randrange(1 << 32) if FUZZING else zlib.crc32(name.encode())
    seed = int(os.environ.get("TAMPU_SEED") or drawn)
    print(f"replay with TAMPU_SEED={seed}")
    return seed
