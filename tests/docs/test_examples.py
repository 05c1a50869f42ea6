"""Runs the examples of README.md and docs/, so that what the documents show is true.

The blocks of one document run in the order in which a reader types them, in one empty working directory. `python`
blocks share a namespace; one that begins with `# name.py` is saved under that name instead. Of `console` blocks each
line that starts with `$ ` is a command that must exit with 0, or with N if it ends in `# exit N`. One that ends in `&`
is in another terminal: it goes on, after it has said something, until Ctrl-C at the end, and must not fail then.
A block below `<!-- not run: the reason -->` is left out. Printed output is shown to the reader, not compared.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 120

FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,})\s*(?P<language>[\w+-]*)")
NOT_RUN = re.compile(r"^\s*<!-- not run: \S.*-->\s*$")
EXPECTED_EXIT = re.compile(r"#\s*exit (\d+)\s*$")
# These would never be run, and nobody would notice.
FILE = re.compile(r"# (\w+\.py)\n")
MISSPELLED = {"py": "python", "python3": "python", "pycon": "python"} | dict.fromkeys(
    ("bash", "sh", "shell", "shell-session", "zsh"), "console"
)


@dataclass(frozen=True, kw_only=True)
class Block:
    language: str
    text: str
    line: int
    """Where the text begins in its document, counted from 1."""


class ExampleFailed(Exception):
    pass


def blocks_to_run(document: Path) -> Iterator[Block]:
    lines = document.read_text(encoding="utf-8").splitlines()
    above = ""
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            above = lines[at] if lines[at].strip() else above
            at += 1
            continue
        closing = re.compile(rf"^\s*{opening['ticks']}`*\s*$")
        end = next((n for n in range(at + 1, len(lines)) if closing.match(lines[n])), None)
        if end is None:
            raise ExampleFailed(f"{document}:{at + 1}: this block is never closed")
        language = opening["language"].lower()
        if not NOT_RUN.match(above):
            if language in MISSPELLED:
                raise ExampleFailed(f"{document}:{at + 1}: write ```{MISSPELLED[language]}, or it will not be run")
            if language in {"python", "console"}:
                text = textwrap.dedent("\n".join(lines[at + 1 : end])) + "\n"
                yield Block(language=language, text=text, line=at + 2)
        above = ""
        at = end + 1


def commands(block: Block) -> Iterator[tuple[int, str]]:
    """The commands of a console block with their lines; a backslash at the end carries on to the next line."""
    numbered = iter(enumerate(block.text.splitlines(), start=block.line))
    for line, text in numbered:
        if not text.startswith("$ "):
            continue
        command = text.removeprefix("$ ")
        while command.endswith("\\"):
            command += "\n" + next(numbered)[1].removeprefix("> ")
        yield line, command


def run_python(document: Path, block: Block, namespace: dict[str, object]) -> None:
    # Empty lines in front, so that a traceback points into the document.
    source = "\n" * (block.line - 1) + block.text
    try:
        exec(compile(source, str(document), "exec", dont_inherit=True), namespace)  # noqa: S102 (our own documents)
    except (Exception, SystemExit) as error:
        raise ExampleFailed(f"{document}:{block.line}: this python block raised {error!r}") from error


class Terminal:
    """Another terminal, in which a command goes on."""

    def __init__(self, where: str, command: str, env: dict[str, str]) -> None:
        self._where = where
        self._output = Path(f"terminal-{line_of(where)}.out")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        until = time.monotonic() + COMMAND_SECONDS
        while not self._output.stat().st_size:  # a reader waits for it too
            if self._process.poll() is not None or time.monotonic() > until:
                raise ExampleFailed(f"{where}: it says nothing: {command}")
            time.sleep(0.05)  # noqa: TID251 - another process, which has no other sign

    def end(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ExampleFailed(f"{self._where}: it does not stop") from None
        if code not in (0, 130):  # 130: it was still starting
            raise ExampleFailed(f"{self._where}: exit {code} at Ctrl-C\n{self._output.read_text()}")


def line_of(where: str) -> str:
    return where.rpartition(":")[2]


def run_console(document: Path, block: Block, ends: contextlib.ExitStack) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line, command in commands(block):
        if command.endswith(" &"):
            env = os.environ | {"PATH": path, "TAMPU_PORT": str(free_port())}
            ends.callback(Terminal(f"{document}:{line}", command.removesuffix(" &"), env).end)
            continue
        stated = EXPECTED_EXIT.search(command)
        expected = int(stated[1]) if stated else 0
        try:
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", command],
                env=os.environ | {"PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ExampleFailed(f"{document}:{line}: still running after {COMMAND_SECONDS} s: {command}") from error
        if done.returncode != expected:
            raise ExampleFailed(
                f"{document}:{line}: exit {done.returncode} instead of {expected}: {command}\n{done.stdout}"
            )


def run_document(document: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workdir)
    monkeypatch.delenv("TAMPU_URL", raising=False)
    # A real module, because annotations of structs are looked up in sys.modules.
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    with contextlib.ExitStack() as ends:
        for block in blocks_to_run(document):
            if block.language == "console":
                run_console(document, block, ends)
            elif named := FILE.match(block.text):
                Path(named[1]).write_text(block.text)
            else:
                run_python(document, block, module.__dict__)


def documents() -> Iterator[Path]:
    decisions = ROOT / "docs" / "decisions"
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if document.is_file() and decisions not in document.parents:
            yield document


@pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in documents()])
def test_examples_of_a_document_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        run_document(document, tmp_path, monkeypatch)
    except ExampleFailed as failure:
        if failure.__cause__ is not None:
            raise
        raise pytest.fail.Exception(str(failure), pytrace=False) from None


# The runner itself: an example that is wrong must be noticed, at the right line.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n", r":6: this python block raised AssertionError"),
        ("```console\n$ true\n$ exit 4\n```\n", r":3: exit 4 instead of 0"),
        ("```console\n$ true  # exit 3\n```\n", r":2: exit 0 instead of 3"),
        ("```console\n$ false | true\n```\n", r":2: exit 1 instead of 0"),
        ("```console\n$ true &\n```\n", r":2: it says nothing"),
        ("```console\n$ sh -c 'trap \"exit 7\" INT; echo up; while :; do :; done' &\n```\n", r":2: exit 7 at Ctrl-C"),
        ("```bash\ntrue\n```\n", r":1: write ```console"),
        ("```python\nx = 1\n", r":1: this block is never closed"),
    ],
)
def test_wrong_example_fails_with_its_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "page.md"
    document.write_text(text)
    with pytest.raises(ExampleFailed, match=message):
        run_document(document, tmp_path, monkeypatch)


def test_blocks_share_a_directory_and_a_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "1. In a list:\n\n"
        "   ```python\n   from pathlib import Path\n   Path('made').write_text('by python')\n   ```\n\n"
        "```console\n$ grep -q \\\n>   python made\nwhat it prints\n$ cp made copy; exit 3  # exit 3\n```\n\n"
        "```python\nPath('copy').rename('seen')\n```\n"
    )
    run_document(document, tmp_path, monkeypatch)
    assert (tmp_path / "seen").read_text() == "by python"


def test_a_block_with_a_name_is_saved_and_another_terminal_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "```python\n# greet.py\nprint('hi')\n```\n\n"
        "```console\n$ sh -c 'trap \"echo bye; exit 0\" INT; echo up; while :; do :; done' &\n"
        "$ python greet.py > seen\n```\n"
    )
    run_document(document, tmp_path, monkeypatch)
    assert (tmp_path / "seen").read_text() == "hi\n"
    assert (tmp_path / "terminal-7.out").read_text() == "up\nbye\n"


def test_block_with_a_reason_is_left_out(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("<!-- not run: needs a server -->\n\n```console\n$ false\n```\n\n```text\n$ false\n```\n")
    assert list(blocks_to_run(document)) == []
