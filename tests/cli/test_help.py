"""What the help, suggestions and global options of the command are like."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import tampu
from tampu.broker import access
from tampu.cli.main import app
from tests.cli.run_command import Command
from tests.server.web import Web
from tests.servers.http import Stall


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stall]:
    made = Stall(url="memory://", key_file=tmp_path_factory.mktemp("node") / "key")
    yield made
    made.stop()


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name)


def test_no_help_has_types_in_angle_brackets_or_brackets_in_brackets(command: Command) -> None:
    for path in _commands(get_command(app)):
        shown = command(*path, "--help").out
        assert not re.search(r"<(int|str|bool|float|path|list|.*range)", shown), path
        assert "SECONDS" not in shown, path
        usage = next(line for line in shown.splitlines() if "Usage:" in line)
        assert not re.search(r"\[\[|\{|\.\.\.", usage), usage
        assert "--token" in shown or path == ("help",), path
    assert "tampu[server]" in command("demo", "--help").out


def test_help_of_a_command_in_both_ways_and_the_version(command: Command) -> None:
    for words in ((), ("publish",), ("schedule", "add")):
        helped = command("help", *words)
        assert (helped.code, helped.out) == (0, command(*words, "--help").out)
    assert command("help", "pubish").code == 2
    assert "Did you mean 'publish'" in command("help", "pubish").err
    assert command("-v").out == command("--version").out
    assert command("-v").out.startswith(f"tampu {tampu.__version__} ")


def test_a_queue_that_does_not_exist_leads_to_a_similar_one(command: Command) -> None:
    command.ok("publish", "emails", "1")
    for words in (("stats", "emials"), ("peek", "emials"), ("list", "emials"), ("config", "emials")):
        refused = command("--json", *words)
        assert (refused.code, refused.error["code"]) == (3, "not_found"), words
        assert refused.error["message"] == "no queue emials; did you mean emails?", words
    claimed = command("claim", "emials")
    assert "queue emials does not exist yet; did you mean emails?" in claimed.err
    assert "queue emials is new; did you mean emails?" in command("publish", "emials", "1").err
    assert "did you mean" not in command("publish", "emials", "1").err
    assert "did you mean" not in command("publish", "reports", "1").err


def test_the_token_is_given_as_option_or_in_the_environment(
    node: Stall, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAMPU_TOKEN", raising=False)
    refused = command("--json", "--url", node.url, "queues")
    assert refused.error["code"] == "unauthorized"
    assert refused.error["hint"] == "give a key with --token, or in TAMPU_TOKEN"
    assert command("--url", node.url, "--token", node.token, "publish", "q", "1").code == 0
    assert command.ok("queues", "--url", node.url, "--token", node.token)["queues"][0]["queue"] == "q"
    assert "TAMPU_TOKEN" not in os.environ
    monkeypatch.setenv("TAMPU_TOKEN", node.token)
    assert command.ok("--url", node.url, "queues")["queues"][0]["queue"] == "q"
    assert "this is not a key" in command("--url", node.url, "--token", "tampu_wrong", "queues").err
    assert os.environ["TAMPU_TOKEN"] == node.token
    claimed = command("claim", "q", "--url", node.url, "--token", node.token)
    assert node.token not in claimed.out + claimed.err
    assert "--token KEY" in claimed.err
    on_file = command("--json", "queues", "--token", node.token)
    assert (on_file.code, on_file.error["field"]) == (2, "token")


def test_a_list_shows_where_dead_messages_failed_and_how_far_leased_ones_are(command: Command) -> None:
    with command.queue() as store, tampu.App(store) as jobs:

        @jobs.task(queue="q", max_attempts=1)
        def fails() -> None:
            raise ValueError("no network [bold]")

        failed = fails.publish()
        with tampu.working(jobs), pytest.raises(tampu.TaskFailed):
            failed.result(60)
        store.publish("q", 2)
        (lease,) = store.claim("q", worker="ada's [red]worker")
        note = {"progress": 0.5, "note": "half"}
        access.run(store, access.verbs(store).write_note(lease.id, lease.receipt, note, 60))
    dead = command("list", "q", "--state", "dead").out
    assert "ValueError: no network [bold]" in dead
    assert f"{Path(__file__).name}:" in dead
    assert " fails" in dead
    (found,) = command.ok("list", "q", "--state", "dead")["messages"]
    assert found["failures"][0]["traceback"].endswith("ValueError: no network [bold]\n")
    leased = command("list", "q", "--state", "leased").out
    assert "50%, half" in leased
    assert "by ada's [red]worker, lease ends in" in leased
    (found,) = command.ok("list", "q", "--state", "leased")["messages"]
    assert (found["worker"], found["progress"]) == ("ada's [red]worker", {"done": 0.5, "note": "half"})
    shown = command("show", lease.id).out
    assert "ada's [red]worker" in shown
    assert "50%, half" in shown


def test_documents_have_the_names_of_the_server(node: Stall, command: Command) -> None:
    """Whatever a field of an answer over HTTP is called, the same field is in the document of the command."""
    store = tampu.open(node.url, token=node.token)
    with store:
        message = store.publish("q", {"a": 1}, labels={"b": "c"}, delay=60, hold=None)
        store.schedules.put("nightly", queue="q", payload=1, every=60, ttl=5)
        store.publish("q", 1)
        store.reject(store.claim("q")[0], error=ValueError("no network"))
    remote = ("--url", node.url, "--token", node.token)
    pairs = {
        f"/v1/messages/{message.id}": command.ok("show", message.id, *remote),
        "/v1/queues/q/stats": command.ok("stats", "q", *remote)["queues"][0],
        "/v1/schedules/nightly": command.ok("schedule", "show", "nightly", *remote),
        "/v1/check": command.ok("doctor", *remote),
        "/v1/schedules": command.ok("schedule", "list", *remote),
        "/v1/queues/q/messages?state=dead": command.ok("list", "q", "--state", "dead", *remote),
        "/v1/dead": command.ok("dead", "list", *remote),
        "/v1/dead/groups": command.ok("dead", "groups", *remote),
        "/v1/agents": command.ok("agents", "list", *remote),
        "/v1/audit": command.ok("audit", *remote),
        "/v1/journal?limit=3": command.ok("journal", *remote),
    }
    web = Web(node.url, node.token)
    for path, document in pairs.items():
        _same_names(web.get(path).json, document, path)


def _same_names(answer: Any, document: Any, where: str) -> None:
    if isinstance(answer, dict) and not where.endswith(("position", "latest")):  # texts that --after takes
        assert not answer.keys() - document.keys(), f"{where}: {answer.keys() - document.keys()}"
        for name, value in answer.items():
            _same_names(value, document[name], f"{where}.{name}")
    elif isinstance(answer, list) and answer:
        _same_names(answer[0], document[0], where)
