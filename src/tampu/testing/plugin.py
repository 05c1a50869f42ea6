"""Fixtures for pytest, available when tampu is installed: `tampu_clock`, `tampu_app`, `tampu_rehearsal`.

Override `tampu_app` with your own app. tampu is imported only when a test uses one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tampu.testing import FakeClock, Rehearsal
    from tampu.worker.app import App


@pytest.fixture
def tampu_clock() -> FakeClock:
    """A clock that only the test moves."""
    from tampu.testing import FakeClock

    return FakeClock()


@pytest.fixture
def tampu_app() -> App:
    """The app to test: an empty one, unless you override this fixture."""
    from tampu import App

    return App("memory://")


@pytest.fixture
def tampu_rehearsal(tampu_app: App, tampu_clock: FakeClock) -> Iterator[Rehearsal]:
    """The app on a store in memory, with the clock of `tampu_clock`."""
    from tampu.testing import Rehearsal

    with Rehearsal(tampu_app, tampu_clock) as rehearsal:
        yield rehearsal
