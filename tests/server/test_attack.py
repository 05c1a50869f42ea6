"""The short form of `make attack`: a server of its own holds in every known attack, made small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.attack.attacks import ATTACKS
from bench.attack.target import Target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("attacked"))
    yield made
    made.stop()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_server_holds(target: Target, name: str) -> None:
    ATTACKS[name](target, 0.02)
    assert target.request("GET", "/ready", token=None)[0] == 200
    assert target.process.poll() is None
