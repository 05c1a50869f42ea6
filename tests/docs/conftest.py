"""What a document sets up for its whole program is undone after it: tests share a process."""

import pytest
from opentelemetry import trace


@pytest.fixture(autouse=True)
def _tracing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)())
