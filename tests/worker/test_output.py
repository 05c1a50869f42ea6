"""What a worker tells in its log: its start, each failed attempt, dead messages; and its metrics."""

import json
import logging
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import tampu
from tampu.cli.commands.work import startup
from tampu.cli.session import Session
from tampu.worker.logs import attempts, formats
from tampu.worker.logs.user_frames import user_frames
from tampu.worker.process import metrics, run
from tests.servers.ports import free_port
from tests.worker.crew import PATIENCE, wait

SESSION = Session("memory://", None, json=False)


def lines(caplog: pytest.LogCaptureFixture, logger: str = attempts.NAME) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == logger]


def test_failed_attempts_are_warnings_and_dead_messages_errors_with_the_users_frames(
    memory: tampu.App, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.task(max_attempts=2, backoff=[0.01])
    def fail() -> None:
        raise ValueError("no network")

    @memory.task(max_attempts=3)
    async def refuse() -> None:
        raise tampu.Reject("no_such_user")

    @memory.task
    def succeed() -> int:
        return 1

    caplog.set_level(logging.INFO, attempts.NAME)
    with tampu.working(memory):
        published = [fail.publish(), refuse.publish()]
        for one in published:
            with pytest.raises(tampu.TaskFailed):
                one.result(PATIENCE)
        done = succeed.publish()
        assert done.result(PATIENCE) == 1
    found = lines(caplog)
    failing, refused = (one.id for one in published)
    assert ("INFO", f"succeed {done.id}: done") in found
    assert ("WARNING", f"fail {failing}: attempt 1 of 2 failed: ValueError: no network; next try in 0.01 s") in found
    (dead,) = [text for level, text in found if level == "ERROR" and "fail" in text.split()[0]]
    first, *trace = dead.splitlines()
    assert first == f"fail {failing} is dead after attempt 2 of 2 (no attempts are left): ValueError: no network"
    assert [line for line in trace if line.startswith("  File")] == [trace[1]]
    assert f'File "{__file__}"' in trace[1]
    (rejected,) = [text for level, text in found if level == "ERROR" and text.startswith("refuse")]
    assert rejected.splitlines()[0] == f"refuse {refused} is dead after attempt 1 of 3 (no_such_user)"


def test_time_of_the_next_try_is_known_if_the_queue_has_the_backoff(
    memory: tampu.App, caplog: pytest.LogCaptureFixture
) -> None:
    memory.store.queues.put("default", backoff=[3600])

    @memory.task
    def fail() -> None:
        raise ValueError("no network")

    fail.publish()
    with tampu.working(memory):
        wait(lambda: bool(lines(caplog)))
    ((level, text),) = lines(caplog)
    assert level == "WARNING"
    assert " next try in " in text
    assert float(text.split()[-2]) > 1000


def test_a_message_without_a_task_is_reported_with_the_task_that_was_probably_meant(memory: tampu.App) -> None:
    memory.task(name="send")(lambda: None)
    message = memory.store.publish("default", {}, type="sned", max_attempts=1)
    with tampu.working(memory):
        found = memory.store.result(message.id, wait=PATIENCE)
    assert found.last_error == "this worker has no task named sned; did you mean send?"


def test_json_lines_have_the_facts_of_an_attempt(memory: tampu.App, caplog: pytest.LogCaptureFixture) -> None:
    @memory.task(max_attempts=1)
    def fail() -> None:
        raise ValueError("no network")

    published = fail.publish()
    with tampu.working(memory), pytest.raises(tampu.TaskFailed):
        published.result(PATIENCE)
    (record,) = [record for record in caplog.records if record.name == attempts.NAME]
    document = json.loads(formats.Json().format(record))
    expected = {
        "level": "error", "task": "fail", "message_id": published.id, "queue": "default", "attempt": 1,
        "max_attempts": 1, "outcome": "dead", "error": "ValueError: no network",
    }  # fmt: skip
    assert expected.items() <= document.items()
    assert document["traceback"].endswith("ValueError: no network")
    assert "task=" not in formats.Plain().format(record)


def test_start_names_the_store_and_warns_of_what_looks_like_a_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tampu.worker")
    url = tmp_path / "jobs.db"
    session = replace(SESSION, url=str(url))
    with tampu.App(url) as app:
        app.task(name="send", queue="mails")(lambda: None)
        app.task(name="count", queue="numbers")(lambda: None)
        options = tampu.RunnerOptions(queues={"mail": 1, "numbers": 1, "other": 1}, concurrency=7)
        startup.report(tampu.Runner(app, options), session, is_new=session.is_new())
        app.store.publish("mail", 1)
        app.store.publish("mails", 1)
        first = lines(caplog, "tampu.worker")
        caplog.clear()
        startup.report(tampu.Runner(app, options), session, is_new=session.is_new())
        second = lines(caplog, "tampu.worker")
    assert first == [
        ("INFO", f"tampu {tampu.__version__}, store {url}, durability full"),
        ("INFO", "queues: mail, numbers, other; tasks: count, send; at most 7 at once"),
        ("WARNING", f"{url} did not exist and was created; if it is not the store you publish to, use --url"),
        ("WARNING", "no task uses queue mail; did you mean mails?"),
        ("WARNING", "no task uses queue other"),
        ("WARNING", "queue mails has tasks, but this worker does not take from it; add it to --queues"),
    ]
    assert second[2:] == [
        ("WARNING", "no task uses queue mail; did you mean mails?"),
        ("WARNING", "queue other does not exist yet, and no task uses it"),
        ("WARNING", "queue mails has tasks, but this worker does not take from it; add it to --queues"),
    ]


def test_password_of_the_store_is_not_logged(memory: tampu.App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tampu.worker")
    session = replace(SESSION, url="postgresql://ada:secret@db/jobs")
    startup.report(tampu.Runner(memory), session, is_new=False)
    assert "postgresql://ada@db/jobs" in caplog.text
    assert "secret" not in caplog.text
    assert ("WARNING", "the app has no tasks; register them with @app.task in a module that it imports") in lines(
        caplog, "tampu.worker"
    )


def test_module_that_cannot_be_imported_is_shown_with_the_users_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {
        "divides": "def f():\n    return 1 / 0\n\nf()\n",
        "needs_more": "import no_such_library\n",
        "misuses": "import math\nmath.nothing\n",
        "good": "import tampu\njobs = tampu.App('memory://')\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    for name, error in (
        ("divides", "ZeroDivisionError: division by zero"),
        ("needs_more", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("misuses", "AttributeError: module 'math' has no attribute 'nothing'"),
    ):
        caplog.clear()
        with pytest.raises(tampu.InvalidConfig, match=f"{name} cannot be imported: {error.split(':')[0]}"):
            run.load(f"{name}:app")
        shown = caplog.records[-1].getMessage()
        assert shown.endswith(error)
        files = [line for line in shown.splitlines() if line.startswith("  File")]
        assert files
        assert all(f"{name}.py" in line for line in files)
    with pytest.raises(tampu.InvalidConfig, match="module absent not found"):
        run.load("absent:app")
    with pytest.raises(tampu.InvalidConfig, match="good has no app") as refused:
        run.load("good")
    assert refused.value.hint == "tampu work good:jobs"


def test_frames_of_the_worker_are_left_out_of_every_part_of_a_traceback() -> None:
    own = Path(attempts.__file__).parents[1] / "pools" / "call_task.py"
    part = f'Traceback (most recent call last):\n  File "{own}", line 5, in run\n    call()\n    ^^^^\n'
    mine = '  File "/app/shop.py", line 2, in f\n    g()\nValueError: x'
    between = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    head = "Traceback (most recent call last):\n"
    assert user_frames(part + mine + between + part + mine) == head + mine + between + head + mine


def test_metrics_of_a_worker(memory: tampu.App) -> None:
    @memory.task
    def succeed() -> int:
        return 1

    port = free_port()
    with tampu.working(memory) as runner:
        metrics.serve(runner, port, "127.0.0.1")
        assert succeed.publish().result(PATIENCE) == 1
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert 'tampu_worker_attempts_total{outcome="ack",task="succeed"} 1.0' in text
    assert "tampu_worker_store_up 1.0" in text
    with pytest.raises(tampu.Unavailable, match=f"port {port} of 127.0.0.1 cannot be used"):
        metrics.serve(runner, port, "127.0.0.1")
