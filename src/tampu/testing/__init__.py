"""Helpers to test programs that use tampu: a store in memory, a fake clock, and tasks that run one by one.

`Rehearsal` gives an app such a store for a ``with`` block. For pytest there are fixtures (see plugin.py).

Not here: the tests of tampu itself (`tests/`).
"""

from tampu.testing.clock import FakeClock
from tampu.testing.rehearsal import Ran, Rehearsal

__all__ = ["FakeClock", "Ran", "Rehearsal"]
