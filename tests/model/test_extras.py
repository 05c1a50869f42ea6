"""Hints say how to install a missing part where tampu comes from: the package index, or a clone."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tampu.model import extras


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    extras.clone_of.cache_clear()
    yield
    extras.clone_of.cache_clear()


def _installed(monkeypatch: pytest.MonkeyPatch, origin: str | None) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: origin))


def test_from_the_package_index_it_is_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for origin in (None, '{"url": "file:///tmp/tampu-0.1.0-py3-none-any.whl", "archive_info": {}}'):
        extras.clone_of.cache_clear()
        _installed(monkeypatch, origin)
        assert extras.install("server", "spark") == "pip install 'tampu[server,spark]'"


def test_from_a_clone_it_is_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    (clone / "pyproject.toml").touch()
    _installed(monkeypatch, f'{{"url": "{clone.as_uri()}", "dir_info": {{"editable": true}}}}')
    assert extras.install("client") == f"pip install --editable '{clone}[client]'"


def test_on_the_path_without_an_installation_it_is_the_clone_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nothing)
    assert extras.clone_of() == Path(__file__).parents[2]
