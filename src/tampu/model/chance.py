"""Random numbers for tampu, such as for the jitter of retries.

Not from the functions of the module `random`, whose state belongs to the user's program: after `random.seed` all its
processes would get the same jitter, and the program other numbers, because threads of tampu draw in between.
"""

import random

CHANCE = random.SystemRandom()
"""Reads from the operating system, so it has no state that a fork could copy. Threads may share it."""
