"""Moves of houses in which nobody works need not wait until everybody has noticed."""

import pytest

from tampu.broker.moving import closing


@pytest.fixture(autouse=True)
def noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, after settings have changed."""
    monkeypatch.setattr(closing, "NOTICED_SECONDS", 0.0)
