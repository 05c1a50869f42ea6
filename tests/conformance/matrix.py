"""Writes docs/reference/engines.md: which promise is tested on which engine, from the suite itself.

``python -m tests.conformance.matrix`` runs the suite and writes the page; it fails when a test does. With ``--check``
it runs nothing: it holds the page against the tests that would run, the kits, the facts and the capabilities.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import io
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.conftest import EVERY
from tests.conformance.facts import CAPABILITIES, FACTS, TRIED, Facts
from tests.conformance.harness import Kit

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path(__file__).parent
PAGE = ROOT / "docs/reference/engines.md"
_TRIED = "tried with"
_NONE = "-"
# What is imported here is not rewritten by pytest, and it warns of that; nothing here asserts.
_QUIET = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


class Found(msgspec.Struct):
    """What collecting the suite found: the behaviours of each file, and the engines each runs on."""

    behaviours: dict[str, dict[str, set[str]]] = {}
    nodes: dict[str, tuple[str, str, str]] = {}
    """(file, function, kit) by test id."""


class _Collector:
    def __init__(self) -> None:
        self.found = Found()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
            name = getattr(item, "originalname", item.name)
            for kit in (value for value in params.values() if isinstance(value, Kit)):
                self.found.nodes[item.nodeid] = (item.path.name, name, kit.name)
                self.found.behaviours.setdefault(item.path.name, {}).setdefault(name, set()).add(kit.name)


class _Results:
    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.ran: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran.add(report.nodeid)
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


def collect() -> Found:
    collector, said = _Collector(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", *_QUIET, str(SUITE)], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the suite cannot be collected:\n{said.getvalue()}")
    return collector.found


def run(found: Found) -> set[tuple[str, str, str]]:
    """Run the suite; (file, function, kit) of what did not pass."""
    results = _Results()
    pytest.main(["-n", "2", "--dist=worksteal", *_QUIET, str(SUITE)], plugins=[results])
    return {place for node, place in found.nodes.items() if node in results.failed or node not in results.ran}


def _facts() -> list[tuple[Kit, Facts]]:
    missing = [kit.name for kit in EVERY if kit.name not in FACTS]
    if missing:
        raise SystemExit(f"tests/conformance/facts.toml says nothing of {', '.join(missing)}")
    order = list(FACTS)
    return sorted(((kit, FACTS[kit.name]) for kit in EVERY), key=lambda pair: order.index(pair[0].name))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [_row(*head), "|" + "---|" * len(head), *(_row(*row) for row in rows)]


def _sentence(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")


def _title(file: str) -> str:
    return file.removeprefix("test_").removesuffix(".py").replace("_", " ").capitalize()


def _doc(file: str) -> str:
    text = ast.get_docstring(ast.parse((SUITE / file).read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def write(found: Found, failed: set[tuple[str, str, str]], tried: list[str]) -> str:
    columns = _facts()
    titles = [facts.title for _, facts in columns]
    lines = [
        "# Engines", "",
        "<!-- written by `make engines`; tests/docs holds it against the suite -->", "",
        "The same program runs on each store: only the url changes. One test suite, `tests/conformance/`, defines",
        "what an engine is. This page lists its tests and the result of the last run.", "",
        "## Which promises hold where", "",
        "The number of behaviours that are tested and passed; `-` means that the engine does not offer it.", "",
    ]  # fmt: skip
    rows = []
    for file, behaviours in found.behaviours.items():
        cells = []
        for kit, _ in columns:
            count = sum(kit.name in kits for kits in behaviours.values())
            bad = len({name for f, name, k in failed if (f, k) == (file, kit.name)})
            cells.append(_NONE if not count else f"{count - bad} of {count}" if bad else str(count))
        rows.append([f"[{_title(file)}](#{_title(file).lower().replace(' ', '-')})", *cells])
    rows.append([f"*{_TRIED}*", *tried])
    lines += _table(["", *titles], rows)
    lines += ["", "## Capabilities", ""]
    known = [["`" + name + "`", text, *("yes" if name in f.capabilities else _NONE for _, f in columns)]
             for name, text in CAPABILITIES.items()]  # fmt: skip
    lines += _table(["capability", "", *titles], known)
    lines += ["", "Without a capability, a call that needs it raises an error; it never silently does less.", ""]
    lines += ["## Each engine", ""]
    for _, facts in columns:
        lines += [f"### {facts.title}", ""]
        lines += [f"- url: {facts.url}", f"- versions: {facts.versions}", f"- durability: {facts.durability}"]
        lines += [f"- restart: {facts.restart}", ""]
    lines += ["## Every behaviour", ""]
    for file, behaviours in found.behaviours.items():
        lines += [f"### {_title(file)}", "", _doc(file), ""]
        for name, kits in behaviours.items():
            without = [facts.title for kit, facts in columns if kit.name not in kits]
            lines.append(f"- {_sentence(name)}" + (f" (not: {', '.join(without)})" if without else ""))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _tried_before(page: str) -> list[str]:
    """The versions on the page: those of its last run, not of this machine."""
    found = re.search(rf"^\| \*{_TRIED}\* \| (.+) \|$", page, re.MULTILINE)
    return found[1].split(" | ") if found else []


def check() -> list[str]:
    """The lines by which the page differs from what it should be."""
    page = PAGE.read_text() if PAGE.exists() else ""
    wanted = write(collect(), set(), _tried_before(page))
    return list(
        difflib.unified_diff(page.splitlines(), wanted.splitlines(), "engines.md", "as it should be", lineterm="")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is as it should be")
    if parser.parse_args().check:
        difference = check()
        print("\n".join(difference))
        return 1 if difference else 0
    found = collect()
    failed = run(found)
    tried = [TRIED[kit.name]() if kit.name in TRIED else _NONE for kit, _ in _facts()]
    PAGE.write_text(write(found, failed, tried))
    for file, name, kit in sorted(failed):
        print(f"did not pass: {file} {name} on {kit}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
