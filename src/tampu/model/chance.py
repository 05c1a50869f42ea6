"""Where tampu takes chance from: for the jitter of retries, and for taking turns.

Never from the functions of the module `random`. Their state belongs to the user's program: a program that calls
`random.seed` would give the same jitter to each of its processes, and would itself draw other numbers because tampu
draws in between, in threads of its own.
"""

import random

CHANCE = random.SystemRandom()
"""Asks the operating system each time. So it has no state that a fork could copy, and threads may share it."""
