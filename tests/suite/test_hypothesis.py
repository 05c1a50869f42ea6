"""A thread of another library may draw from `random` at any moment: that fails no test that draws with Hypothesis."""

import random
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import OTHER_THREADS_DRAW

pytestmark = OTHER_THREADS_DRAW
_draw = vars(random)["random"]  # as a library would


def _while_another_draws() -> int:
    other = threading.Thread(target=_draw)
    other.start()
    other.join()
    return 1


@given(st.builds(_while_another_draws))
@settings(max_examples=5)
def test_what_another_thread_draws_is_no_fault_of_a_strategy(drawn: int) -> None:
    assert drawn == 1
