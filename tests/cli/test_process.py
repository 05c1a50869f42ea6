"""The command as a real process: exit codes, pipes, Ctrl-C, completion, help."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import tampu
from tampu.cli.main import app
from tests.cli.run_command import Command

COMMANDS = (
    "publish", "claim", "ack", "nack", "reject", "release", "extend", "peek", "show", "list", "stats", "queues",
    "journal", "config", "pause", "resume", "drain", "close", "cancel", "free", "replay", "purge", "remove", "copy",
    "doctor", "bench", "demo",
)  # fmt: skip
TAMPU = [sys.executable, "-c", "from tampu.cli.main import main; main()"]


def run(*args: str, input: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TAMPU, *args], input=input, capture_output=True, text=True, env=os.environ | env, timeout=120, check=False
    )


@contextlib.contextmanager
def started(*args: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The command while it runs; it does not outlive the test, however that ends."""
    process = subprocess.Popen([*TAMPU, *args], text=True, **options)
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_life_of_a_message_by_shell(command: Command) -> None:
    made = run("publish", "q", "-", "--json", input='{"a": 1}')
    assert made.returncode == 0, made.stderr
    receipt = json.loads(run("claim", "q", "--json").stdout)["leases"][0]["receipt"]
    assert run("ack", receipt).returncode == 0
    lost = run("nack", receipt)
    assert lost.returncode == 4
    assert lost.stderr.startswith("error [lease_lost]: ")
    assert "Traceback" not in lost.stderr
    assert run("claim", "q").returncode == 3


def test_installed_script_names_its_entry_point() -> None:
    script = Path(sys.executable).with_name("tampu")
    answer = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=120, check=False)
    assert answer.stdout.startswith(f"tampu {tampu.__version__} ")


def test_help_tells_the_exit_codes_and_all_commands() -> None:
    answer = run("--help", COLUMNS="160")
    assert answer.returncode == 0
    assert "Exit codes: 0 done" in answer.stdout
    for name in COMMANDS:
        assert f"│ {name} " in answer.stdout
        assert run_help(name).startswith("Usage: tampu ")


def test_help_shows_no_type_of_options_without_a_value() -> None:
    def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
        yield path
        for name, one in getattr(group, "commands", {}).items():
            yield from commands(one, *path, name)

    texts = {path: run_help(*path) for path in commands(typer.main.get_command(app))}
    assert len(texts) > 35
    assert [path for path, text in texts.items() if "bool" in text] == []
    assert "--access-log" in texts["serve",]


def run_help(*path: str) -> str:
    answer = CliRunner().invoke(app, [*path, "--help"], prog_name="tampu", env={"COLUMNS": "160"})
    assert answer.exit_code == 0
    return answer.stdout.strip()


def test_without_a_command_the_help_is_shown() -> None:
    answer = run()
    assert answer.returncode == 2
    assert "Usage: tampu" in answer.stdout + answer.stderr
    assert "error" not in answer.stderr


def test_a_closed_pipe_is_left_quietly(command: Command) -> None:
    with command.queue() as store:
        store.publish_many("q", ["x" * 200] * 3000)
    for words in (["list", "q", "--limit", "3000", "--json"], ["list", "q", "--limit", "3000"]):
        env = os.environ | {"PYTHONUNBUFFERED": ""}  # unbuffered, Python does not notice a text that was cut short
        with started(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.read(10)
            process.stdout.close()
            said = process.stderr.read()
            assert process.wait(60) == 141
        assert said == "" or said.startswith("more: ")


@pytest.mark.parametrize(
    "words",
    ["--help", "publish --help", "schedule --help", "schedule add --help", "--version", ""],
    ids=lambda words: words or "no command",
)
def test_help_into_a_closed_pipe_is_left_quietly(words: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        answer = subprocess.run(
            [*TAMPU, *words.split()], stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    finally:
        os.close(theirs)
    assert (answer.returncode, answer.stderr) == (141, "")


@pytest.mark.parametrize(
    "words", [["journal", "--follow"], ["stats", "--watch", "--interval", "1h", "--json"]], ids=lambda words: words[0]
)
def test_who_waits_notices_a_closed_pipe(command: Command, words: list[str]) -> None:
    command.ok("publish", "q", "1")
    with started(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141  # though nothing happens in the queue
        assert process.stderr.read() == ""


def test_follow_prints_what_happens_until_ctrl_c(command: Command) -> None:
    words = ["journal", "--follow", "--json"]
    with command.queue() as store, started(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        store.publish("q", 1)
        assert process.stdout
        first = json.loads(process.stdout.readline())
        (lease,) = store.claim("q")
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (first["verb"], second["verb"], second["id"]) == ("publish", "claim", lease.id)
    assert process.returncode == 130
    assert "Traceback" not in said


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until something another process does can be seen."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        assert process.poll() is None
        threading.Event().wait(0.01)


def test_ctrl_c_while_waiting_is_no_traceback(command: Command) -> None:
    command.ok("config", "q", "lease=1m")
    with started("claim", "q", "--wait", "10m", stderr=subprocess.PIPE) as process:
        wait_for(Path("jobs.db-wal").exists, process)  # it is there while somebody has the file open
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == ""


def test_a_stream_is_published_as_it_arrives(command: Command) -> None:
    with started("publish", "q", "-", "--lines", stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write("1\n")
        process.stdin.flush()
        wait_for(lambda: command.path.exists() and command("peek", "q").code == 0, process)
        process.stdin.write("2\n")
        process.stdin.close()
        assert process.wait(60) == 0
    assert command.ok("stats", "q")["queues"][0]["counts"]["ready"] == 2


def complete(words: str) -> str:
    count = str(len(words.split(" ")) - 1)
    return run(_TAMPU_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count).stdout


def test_the_shell_completes_commands_options_states_and_queues(command: Command) -> None:
    command.ok("publish", "emails", "1")
    assert set(complete("tampu pu").split()) == {"publish", "purge"}
    assert "--idempotency-key" in complete("tampu publish --id")
    assert set(complete("tampu list q --state de").split()) == {"delayed", "dead"}
    assert complete("tampu stats em").split() == ["emails"]


def test_completion_makes_no_file(command: Command) -> None:
    assert complete("tampu stats em").split() == []
    assert not command.path.exists()
