"""Contracts between the packages of tampu that import-linter cannot hold: nobody uses another's underscore names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tampu

ROOT = Path(tampu.__file__).parent
INSIDE_BROKER = {"_core", "_verbs", "_drive", "_work"}
"""What a store and its transactions are made of. `tampu.broker.access` has what other packages need of them."""
ENGINES = {"engine", "_engine"}
"""How a value that is an engine is called."""
BELOW_ENGINES = ("tests/engines/", "tests/faults/history.py", "tests/faults/recovery.py")
"""Tests of the engines themselves, and of power loss, which is simulated below the embedded engine."""
OF_OTHERS = {
    "_replace", "_fields", "_make",  # of named tuples
    "_exit", "_getframe",  # of os and sys
    "_log_destroy_pending",  # of asyncio's tasks
    "_sock",  # of PyMySQL's connections
}  # fmt: skip
"""Underscore names that other projects document, or offer nothing else for."""


class Module:
    """One source file, and the package it is part of."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.tree = ast.parse(text)
        parts = name.split("/")
        self.package = parts[0] if len(parts) > 1 else "tampu"

    def private_names(self) -> Iterator[str]:
        """Underscore names that are defined here: functions, classes, variables, attributes and slots."""
        for node in ast.walk(self.tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    yield name
                case ast.Name(id=name, ctx=ast.Store()):
                    yield name
                case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                    yield name

    def breaches(self, own: set[str]) -> Iterator[str]:
        """Each use of what belongs to another package, with its place. ``own`` are the names of this package."""
        for node in ast.walk(self.tree):
            match node:
                case ast.ImportFrom(module=str(source), names=names) if source.split(".")[0] == "tampu":
                    if self._package_of(source) != self.package:
                        for name in names:
                            if _is_private(name.name):
                                yield f"{self.name}:{node.lineno}: imports {name.name} from {source}"
                case ast.Attribute(attr=attr, value=value) if _is_private(attr) and not _is_self(value):
                    if self._is_foreign(attr, value, own):
                        yield f"{self.name}:{node.lineno}: uses {ast.unparse(node)}"

    @staticmethod
    def _package_of(module: str) -> str:
        return [*module.split("."), "tampu"][1]

    def _is_foreign(self, attr: str, value: ast.expr, own: set[str]) -> bool:
        if attr in INSIDE_BROKER:
            return self.package != "broker"
        if self.package != "engines" and _last_name(value) in ENGINES:
            return True
        return attr not in own and attr not in OF_OTHERS


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _last_name(value: ast.expr) -> str | None:
    """``engine`` of ``engine``, ``q.engine`` and ``q.engine()``."""
    if isinstance(value, ast.Call):
        return _last_name(value.func)
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else None


def found_in(modules: list[Module]) -> list[str]:
    own: dict[str, set[str]] = {}
    for module in modules:
        own.setdefault(module.package, set()).update(module.private_names())
    return [breach for module in modules for breach in module.breaches(own[module.package])]


def test_no_package_uses_the_underscore_names_of_another() -> None:
    modules = [Module(str(path.relative_to(ROOT)), path.read_text()) for path in sorted(ROOT.rglob("*.py"))]
    assert len(modules) > 100
    assert found_in(modules) == [], "make what is needed public, or use tampu.broker.access"


def outside_breaches(module: Module) -> Iterator[str]:
    """As `Module.breaches`, for tests, benchmarks and examples: what they use of tampu that is not for them."""
    inside_engines = module.name.startswith(BELOW_ENGINES)
    for node in ast.walk(module.tree):
        match node:
            case ast.ImportFrom(module=str(source), names=names) if source.split(".")[0] == "tampu":
                for name in names:
                    if _is_private(name.name):
                        yield f"{module.name}:{node.lineno}: imports {name.name} from {source}"
            case ast.Attribute(attr=attr, value=value) if _is_private(attr) and not _is_self(value):
                if attr in ("_core", "_verbs", "_drive") or (_last_name(value) in ENGINES and not inside_engines):
                    yield f"{module.name}:{node.lineno}: uses {ast.unparse(node)}"


def test_tests_and_benchmarks_use_the_public_face_of_tampu() -> None:
    folder = Path(__file__).parent.parent
    paths = [path for part in ("tests", "bench", "examples") for path in sorted((folder / part).rglob("*.py"))]
    modules = [Module(str(path.relative_to(folder)), path.read_text()) for path in paths]
    assert len(modules) > 100
    breaches = [breach for module in modules for breach in outside_breaches(module)]
    assert breaches == [], "make what is needed public, or use tampu.broker.access"


@pytest.mark.parametrize(
    ("text", "breach"),
    [
        ("store._core.engine", "uses store._core"),
        ("access.engine(store)._db", "uses access.engine(store)._db"),
        ("from tampu.server.run import _inside", "imports _inside from tampu.server.run"),
    ],
)
def test_a_breach_in_a_benchmark_is_told_with_its_place(text: str, breach: str) -> None:
    assert [*outside_breaches(Module("bench/some.py", text))] == [f"bench/some.py:1: {breach}"]


def test_only_tests_below_the_engines_may_look_into_them() -> None:
    assert [*outside_breaches(Module("tests/engines/sqlite/test_some.py", "engine._db"))] == []
    assert [*outside_breaches(Module("tests/engines/sqlite/test_some.py", "store._core"))] != []


@pytest.mark.parametrize(
    ("text", "breach"),
    [
        ("q._core.engine", "uses q._core"),
        ("self._q._drive(steps)", "uses self._q._drive"),
        ("q._verbs.publish(1)", "uses q._verbs"),
        ("engine._db", "uses engine._db"),
        ("access.engine(q)._db", "uses access.engine(q)._db"),
        ("self.engine._own", "uses self.engine._own"),
        ("app._given", "uses app._given"),
        (
            "from tampu.broker.commit_queue.coalescer import _inside",
            "imports _inside from tampu.broker.commit_queue.coalescer",
        ),
    ],
)
def test_a_breach_is_reported_with_its_place(text: str, breach: str) -> None:
    module = Module("cli/some.py", f"def _own(): ...\n{text}\n")
    assert found_in([module]) == [f"cli/some.py:2: {breach}"]


@pytest.mark.parametrize(
    "text",
    [
        "self._core.engine", "self._own", "other._own", "engine.__class__", "os._exit(1)",
        "from tampu.cli.other import _own", "from __future__ import annotations",
    ],
)  # fmt: skip
def test_what_is_of_the_same_package_may_be_used(text: str) -> None:
    assert found_in([Module("cli/some.py", f"{text}\ndef _own(): ...\n")]) == []
