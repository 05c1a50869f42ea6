"""Testing programs that use tampu: a store in memory, a clock that is moved by hand, and tasks run one by one.

`Rehearsal` puts an app on such a store for the length of a ``with`` block; pytest has it as fixtures (see plugin.py).
"""

from tampu.testing.clock import FakeClock
from tampu.testing.rehearsal import Ran, Rehearsal

__all__ = ["FakeClock", "Ran", "Rehearsal"]
