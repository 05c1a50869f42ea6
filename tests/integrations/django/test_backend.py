"""The backend of Django's tasks, by the promises of Django's documentation."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.utils import timezone
from django_tasks import TaskResultStatus, task_backends
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

import tampu
from tampu.integrations.django import worker
from tampu.integrations.django.databases import url_of
from tests.integrations.django import tasks

ROOT = Path(__file__).parents[3]


class Working:
    """A worker in a thread."""

    def __init__(self, alias: str = "default") -> None:
        backend: Any = task_backends[alias]
        self._runner = worker.runner(backend)

    def __enter__(self) -> None:
        import threading

        self._thread = threading.Thread(target=self._runner.run)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._runner.stop()
        self._thread.join(60)


def _rolled_back(task: Any, argument: Any) -> Any:
    """The result of a task that was enqueued in a transaction that failed."""
    with transaction.atomic():
        result = task.enqueue(argument)
        transaction.set_rollback(True)
    return result


def _finished(result: Any) -> Any:
    backend: Any = task_backends[result.backend]
    backend.store.result(result.id, wait=120)
    result.refresh()
    assert result.is_finished
    return result


def test_a_task_runs_and_its_result_is_there(project: Path) -> None:
    result = tasks.add.enqueue(1, y=2)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [1], {"y": 2})
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    with Working():
        _finished(result)
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, 3, [])
    assert result.enqueued_at <= result.finished_at
    again = tasks.add.get_result(result.id)
    assert (again.return_value, again.task.func) == (3, tasks.add.func)
    with pytest.raises(TaskResultMismatch):
        tasks.fail.get_result(result.id)


def test_coroutines_context_queues_and_priorities(project: Path) -> None:
    sent = asyncio.run(tasks.mail.aenqueue("ada"))
    first, context = tasks.add.using(priority=-5).enqueue(1), tasks.attempt.using(priority=5).enqueue()
    backend: Any = task_backends["default"]
    assert [m.id for m in backend.store.messages("default", state="ready")] == [context.id, first.id]
    with Working():
        assert _finished(sent).return_value == "sent to ada"
        assert _finished(context).return_value == [1, context.id]
    assert asyncio.run(tasks.mail.aget_result(sent.id)).task.priority == 10


def test_a_task_that_raises_has_failed_at_once(project: Path) -> None:
    result = tasks.fail.enqueue("no such order")
    with Working():
        _finished(result)
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class is LookupError
    assert "no such order" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    odd = tasks.odd.enqueue()
    with Working():
        assert _finished(odd).errors[0].exception_class is TypeError


def test_with_retry_a_task_that_raises_is_tried_again(project: Path) -> None:
    backend: Any = task_backends["retrying"]
    backend.store.queues.put("default", backoff=[0])
    result = tasks.flaky.enqueue(str(project / "tries"))
    with Working("retrying"):
        _finished(result)
    assert (result.return_value, len(result.errors)) == (3, 2)
    assert {error.exception_class for error in result.errors} == {OSError}


def test_run_after_delays(project: Path) -> None:
    due = timezone.now() + timedelta(hours=1)
    result = tasks.add.using(run_after=due).enqueue(1)
    backend: Any = task_backends["default"]
    (message,) = backend.store.messages("default", state="delayed")
    assert (message.id, message.run_at) == (result.id, due)
    assert tasks.add.get_result(result.id).status == TaskResultStatus.READY


def test_a_task_is_published_with_the_transaction_of_the_request(project: Path) -> None:
    backend: Any = task_backends["default"]
    assert backend.store.stats  # the store is made before the transaction, as by a server that has started
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INTEGER)")
    lost = _rolled_back(tasks.add, 1)
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(lost.id)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (1)")
        kept = tasks.add.enqueue(2)
    assert tasks.add.get_result(kept.id).status == TaskResultStatus.READY


def test_the_first_task_of_a_process_may_be_in_a_transaction(project: Path) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INTEGER)")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (1)")  # locks the file
        result = tasks.add.enqueue(1)
    assert tasks.add.get_result(result.id).status == TaskResultStatus.READY


def test_with_another_store_it_is_published_after_the_commit(project: Path) -> None:
    _rolled_back(tasks.flaky, "lost")
    with transaction.atomic():
        kept = tasks.flaky.enqueue("kept")
        with pytest.raises(TaskResultDoesNotExist):
            tasks.flaky.get_result(kept.id)
    assert tasks.flaky.get_result(kept.id).args == ["kept"]
    backend: Any = task_backends["retrying"]
    assert backend.store.stats("default").ready == 1


def test_what_cannot_be_enqueued_is_refused(project: Path) -> None:
    with pytest.raises(InvalidTaskError):
        tasks.add.using(queue_name="unknown")
    with pytest.raises(InvalidTaskError):
        tasks.add.using(priority=101)
    with pytest.raises(TypeError):
        tasks.add.enqueue(object())
    for id in ("no-id", "01a1f032-4407-7000-8016-d725e9661f48"):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(id)
    backend: Any = task_backends["default"]
    other = backend.store.publish("default", "no task")
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(other.id)


def test_signals_are_sent(project: Path) -> None:
    seen: list[tuple[str, str]] = []
    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}

    def receiver(name: str) -> Any:
        return lambda sender, task_result, **_: seen.append((name, task_result.id))

    receivers = {name: receiver(name) for name in signals}
    for name, each in signals.items():
        each.connect(receivers[name])
    try:
        result = tasks.add.enqueue(1)
        with Working():
            _finished(result)
    finally:
        for name, each in signals.items():
            each.disconnect(receivers[name])
    assert seen == [(name, result.id) for name in signals]


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ({"ENGINE": "django.db.backends.sqlite3", "NAME": "/srv/a b.db"}, "sqlite:////srv/a%20b.db"),
        (
            {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "ada", "PASSWORD": "p@ss", "HOST": "db",
             "PORT": 5433},
            "postgresql://ada:p%40ss@db:5433/shop",
        ),
        ({"ENGINE": "django.db.backends.mysql", "NAME": "shop"}, "mariadb://localhost/shop"),
    ],
)  # fmt: skip
def test_the_url_is_that_of_the_database(database: dict[str, Any], url: str) -> None:
    assert url_of(database) == url


@pytest.mark.parametrize(("engine", "name"), [("oracle", "x"), ("sqlite3", ":memory:"), ("sqlite3", "")])
def test_databases_without_a_store_are_refused(engine: str, name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="OPTIONS"):
        url_of({"ENGINE": f"django.db.backends.{engine}", "NAME": name})


def test_an_unknown_option_is_named() -> None:
    from tampu.integrations.django import TampuBackend

    with pytest.raises(tampu.InvalidConfig, match="uri"):
        TampuBackend("default", {"OPTIONS": {"uri": "x"}})


def test_the_worker_of_manage_py(project: Path) -> None:
    result = tasks.add.enqueue(20, y=22)
    program = (
        "import sys; import tests.integrations.django.conftest; from django.conf import settings; "
        f"settings.DATABASES['default']['NAME'] = {str(project / 'db.sqlite3')!r}; "
        "from django.core.management import call_command; call_command('tampu_worker', *sys.argv[1:])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", program]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, cwd=project)
    try:
        assert _finished(result).return_value == 42
    finally:
        process.terminate()
        _, output = process.communicate(timeout=60)
    assert process.returncode == 0, output
    wrong = subprocess.run(
        [*command, "--queue", "none"],
        env=environment,
        capture_output=True,
        text=True,
        cwd=project,
        timeout=120,
        check=False,
    )
    assert "no queue none; QUEUES has default, mail" in wrong.stderr
