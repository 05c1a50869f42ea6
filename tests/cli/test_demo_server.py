"""`make run`: the demo is served while it works, stays on a terminal until Ctrl-C, and ends by itself elsewhere."""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import urllib3

import tampu
from tampu.cli.demo import lake
from tests.cli.run_command import Command
from tests.conformance.harness import until
from tests.servers.ports import free_port

DEMO = [sys.executable, "-c", "from tampu.cli.main import main; main()", "demo", "--fast", "--no-lake", "--serve"]
LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/signin\?token=[\w-]+")


class Person:
    """Somebody at a terminal, who reads what is shown."""

    def __init__(self, place: Path, **environment: str) -> None:
        ours, theirs = pty.openpty()
        env = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("TAMPU_")}
        self.process = subprocess.Popen(
            DEMO,
            cwd=place,
            env={**env, "TAMPU_PORT": str(free_port()), "TERM": "xterm", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.STDOUT,
        )
        os.close(theirs)
        self._terminal = ours
        self.seen = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while raw := os.read(self._terminal, 65536):
                self.seen += raw.decode(errors="replace")

    def links(self) -> list[re.Match[str]]:
        return list(LINK.finditer(self.seen))

    def leave(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        os.close(self._terminal)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A server sets up the logs of its whole process, which here is the tests'."""
    before = structlog.get_config()
    loggers = [logging.getLogger(name) for name in ("tampu", "uvicorn", "uvicorn.access")]
    were = [(log.handlers[:], log.propagate, log.level, log.disabled) for log in loggers]
    yield
    structlog.configure(**before)
    for log, (handlers, propagate, level, disabled) in zip(loggers, were, strict=True):
        log.handlers[:], log.propagate, log.disabled = handlers, propagate, disabled
        log.setLevel(level)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    made = Person(tmp_path)
    yield made
    made.leave()


def _page(link: str) -> str:
    """What a browser shows that follows the link."""
    pool = urllib3.PoolManager(retries=False)
    signed = pool.request("GET", link, redirect=False, timeout=60)
    assert signed.status == 303, signed.data
    home = link.partition("/signin")[0] + "/"
    answer = pool.request("GET", home, headers={"cookie": signed.headers["set-cookie"].partition(";")[0]}, timeout=60)
    assert answer.status == 200
    return answer.data.decode()


def test_on_a_terminal_the_work_is_on_the_page_until_ctrl_c(person: Person, tmp_path: Path) -> None:
    until(lambda: bool(person.links()), 120)
    assert "emails" in _page(person.links()[0][0]), "while the demo works"
    until(lambda: "Stop with Ctrl-C" in person.seen, 120)
    again = person.links()[-1]
    with tampu.open(again[1], token=(tmp_path / ".tampu-demo/tampu-demo.db.key").read_text().strip()) as store:
        before = store.stats("emails").done
        until(lambda: store.stats("emails").done > before, 60)
    assert "webhooks" in _page(again[0]), "and after it"
    person.process.send_signal(signal.SIGINT)
    assert person.process.wait(60) == 0
    assert "Traceback" not in person.seen
    with pytest.raises(urllib3.exceptions.HTTPError):
        urllib3.PoolManager(retries=False).request("GET", again[1], timeout=5)
    with tampu.open(tmp_path / "tampu-demo.db", maintenance=False) as store:
        assert [finding for finding in store.check() if finding[1] == "bad"] == []
        assert store.stats("emails").leased == 0, "workers finished what they had"


def test_in_ci_it_ends_by_itself_also_on_a_terminal(tmp_path: Path) -> None:
    person = Person(tmp_path, CI="true")
    try:
        assert person.process.wait(120) == 0
        assert "Ctrl-C" not in person.seen
    finally:
        person.leave()


def test_without_a_terminal_it_ends_by_itself(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_PORT", "0")
    answer = command.ok("demo", "--fast", "--no-lake", "--serve")
    assert answer["left"]["emails"]["dead"] == 1
    assert answer["server"].startswith("http://127.0.0.1:")
    assert "server" not in command.ok("demo", "--fast"), "only when asked for, or there is time for it"


ROOT = Path(__file__).parents[2]


def _committed() -> list[str]:
    """What git would take in with ``git add .`` here."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    output = b""
    for words in (["init", "-q"], ["add", "."], ["ls-files"]):
        output = subprocess.run(["git", *words], env=env, check=True, capture_output=True).stdout
    return output.decode().splitlines()


def test_the_admin_key_is_private_and_git_does_not_take_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_PORT", "0")
    command.ok("demo", "--fast", "--no-lake", "--serve")
    (key,) = Path().rglob("*.key")
    token = key.read_bytes().strip()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, key.parent)] == [0o600, 0o700]
    committed = _committed()
    assert "tampu-demo.db" in committed, "a repository of somebody who has no rules for what tampu makes"
    assert not [name for name in committed if token in Path(name).read_bytes()]


def test_make_run_leaves_nothing_for_git_in_this_repository(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_PORT", "0")
    shutil.copy(ROOT / ".gitignore", ".gitignore")
    command.ok("demo", "--fast", "--no-lake", "--serve")
    Path("tampu.db.key").write_text("of a server that was tried here")
    assert _committed() == [".gitignore"]


def test_a_key_file_that_was_named_is_where_it_was_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_PORT", "0")
    monkeypatch.setenv("TAMPU_KEY_FILE", "here.key")
    command.ok("demo", "--fast", "--no-lake", "--serve")
    assert Path("here.key").exists()
    assert not Path(".tampu-demo").exists()


def test_a_port_that_is_taken_is_no_hindrance(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("TAMPU_PORT", str(port))
        assert not command.ok("demo", "--fast", "--no-lake", "--serve")["server"].endswith(f":{port}")


def test_a_lost_admin_key_is_reported(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_PORT", "0")
    command.ok("demo", "--fast", "--no-lake", "--serve")
    Path(".tampu-demo/tampu-demo.db.key").unlink()
    refused = command("demo", "--fast", "--no-lake", "--serve", "--json")
    assert "--no-serve" in refused.error["hint"]


def test_the_second_act_installs_what_the_lake_needs_and_says_how_much(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "possible", lambda: Path("installed").exists())
    monkeypatch.setattr(lake, "run", lambda _: {"lake": "tampu-demo.lake"})
    monkeypatch.setenv("TAMPU_DEMO_INSTALL", "touch installed")
    seen = command("demo", "--fast", "--lake")
    assert seen.code == 0, seen
    assert "about 640 MB, downloaded once" in seen.out
    assert Path("installed").exists()
    assert "640 MB" not in command("demo", "--fast", "--lake").out, "not again"
    Path("installed").unlink()
    monkeypatch.setenv("TAMPU_DEMO_INSTALL", "false")
    refused = command("demo", "--fast", "--lake", "--json")
    assert (refused.code, refused.error["code"]) == (5, "unavailable")
    assert "--no-lake" in refused.error["hint"]
