"""Where chance begins in a test: at the same point each time, unless one looks for new ones."""

import os
import random
import zlib

FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
"""`make fuzz` looks at what nobody has looked at yet."""


def seed_of(name: str) -> int:
    """TAMPU_SEED=n replays; pytest shows what is printed here when a test fails."""
    drawn = random.SystemRandom().randrange(1 << 32) if FUZZING else zlib.crc32(name.encode())
    seed = int(os.environ.get("TAMPU_SEED") or drawn)
    print(f"replay with TAMPU_SEED={seed}")
    return seed
