"""`tampu top`: what happens in a store now, over any url."""

import io
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest
from rich.console import Console

import tampu
from tampu.cli import output
from tampu.cli.top import overview, rates
from tampu.cli.top.overview import Overview
from tests.cli.run_command import Command
from tests.cli.test_process import started
from tests.servers.http import Stall


@pytest.fixture(params=["file", "http"])
def where(request: pytest.FixtureRequest, command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Url of a store, also behind a server."""
    if request.param == "file":
        yield str(command.path)
        return
    node = Stall(url=str(command.path), key_file=command.path.parent / "key")
    monkeypatch.setenv("TAMPU_TOKEN", node.token)
    yield node.url
    node.stop()


def test_queues_workers_and_failures_are_seen_over_any_url(
    where: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "WINDOW", 36_000.0)  # however slow this machine is
    began, go_on = threading.Event(), threading.Event()
    with tampu.App(where) as jobs:

        @jobs.task(queue="slow")
        def slow() -> None:
            tampu.current().progress(0.25, "copying [red]")
            began.set()
            assert go_on.wait(60)

        @jobs.task(queue="broken", max_attempts=1)
        def broken() -> None:
            raise ValueError("no network [bold]")

        with tampu.working(jobs, name="ada's worker"):
            slow.publish()
            failed = broken.publish()
            with pytest.raises(tampu.TaskFailed):
                failed.result(60)
            assert began.wait(60)
            slow.options(delay=3600).publish()
            found = command.ok("top", "--once", "--url", where)
            shown = command("top", "--once", "--url", where).out
            go_on.set()
    queues = {row["queue"]: row for row in found["queues"]}
    assert queues["slow"]["counts"]["leased"] == queues["slow"]["counts"]["delayed"] == 1
    counts = {
        queue: {kind: round(36_000 * rate) for kind, rate in row["rates"].items()} for queue, row in queues.items()
    }
    assert counts["slow"] == {"published": 2, "claimed": 1, "done": 0, "failed": 0, "dead": 0}
    assert counts["broken"] == {"published": 1, "claimed": 1, "done": 0, "failed": 1, "dead": 1}
    (worker,) = found["workers"]
    assert (worker["worker"], worker["leased"]) == ("ada's worker", 1)
    assert (worker["running"][0]["type"], worker["running"][0]["queue"]) == ("slow", "slow")
    (failure,) = found["failures"]
    assert (failure["id"], failure["state"], failure["error"]) == (failed.id, "dead", "ValueError: no network [bold]")
    for text in ("slow", "ada's worker", "1 worker at work", "ValueError: no network [bold]", "<0.01", "1 dead"):
        assert text in shown, text


def test_all_messages_at_work_are_counted_also_those_that_are_not_read(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_MOST_LEASED", 1)
    with tampu.open(str(command.path)) as store:
        store.publish_many("q", [1, 2, 3])
        store.claim("q", limit=3)
        assert "3 at work" in command("top", "--once").out


def test_it_refreshes_until_told_to_stop_and_shows_that_the_store_does_not_answer(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.ok("publish", "q", "1")
    lines = command("top", "--json", "--times", "3", "--interval", "50ms").out.splitlines()
    assert len(lines) == 3
    take, calls = Overview.take, []

    def fail_once(self: Overview) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise tampu.Unavailable("it is away")
        return take(self)

    monkeypatch.setattr(Overview, "take", fail_once)
    assert "it is away" in command("top", "--times", "2", "--interval", "50ms").out
    calls.clear()
    assert "it is away" not in command("top", "--times", "3", "--interval", "50ms").out
    assert len(calls) == 3


def test_ctrl_c_ends_it_without_an_error(command: Command) -> None:
    command.ok("publish", "q", "1")
    with started("top", "--json", "--interval", "50ms", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")


def test_in_a_terminal_it_has_the_screen_and_gives_it_back(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command.ok("publish", "q", "1")
    screen = io.StringIO()
    monkeypatch.setattr(output, "_console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    assert command("top", "--times", "2", "--interval", "50ms").code == 0
    drawn = screen.getvalue()
    assert drawn.startswith("\x1b[?1049h")
    assert drawn.rstrip("\x1b[?25h").endswith("\x1b[?1049l")
    assert drawn.count("1 waiting") == 2


def test_a_store_busier_than_can_be_read_has_estimated_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_MOST_READ", 10)
    monkeypatch.setattr(rates, "WINDOW", 36_000.0)
    with tampu.open("memory://") as store:
        store.publish("q", 0)
        reader = rates.Rates(store)
        store.publish_many("q", range(100))
        assert reader.read()["q"]["published"] == pytest.approx(101 / 36_000, rel=0.01)
        assert reader.read()["q"]["published"] == pytest.approx(101 / 36_000, rel=0.01)


def test_a_key_that_may_not_read_the_journal_sees_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise tampu.Forbidden("you may not")

    with tampu.open("memory://") as store:
        store.publish("q", 0)
        monkeypatch.setattr(store, "journal", refuse)
        picture = Overview(store).take()
    assert (picture.rates, picture.failures) == (None, [])
    assert picture.document()["queues"][0]["rates"] is None
