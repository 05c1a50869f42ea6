"""Moves of stores in which nobody works need not wait until everybody has noticed."""

import pytest

from tampu.broker.transfer import close


@pytest.fixture(autouse=True)
def noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, after settings have changed."""
    monkeypatch.setattr(close, "NOTICED_SECONDS", 0.0)
