"""Carries out tasks of Django: the task of tampu that every message of the backend is for."""

from __future__ import annotations

from typing import Any

from django.db import close_old_connections
from django.utils.module_loading import autodiscover_modules

import tampu
from tampu.integrations.django.backend import TYPE, TampuBackend
from tampu.integrations.django.compat import TaskContext, normalize_json, task_finished, task_started
from tampu.worker.runner import Runner, RunnerOptions


def application(backend: TampuBackend) -> tampu.App:
    """The backend's application, with the task that carries out Django's."""
    autodiscover_modules("tasks")
    app = backend.app
    if TYPE not in app.tasks:

        @app.task(name=TYPE, queue=min(backend.queues), dead_on=None if backend.retry else (Exception,))
        def run(task: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
            return _run(backend, task, args, kwargs)

    return app


def _run(backend: TampuBackend, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    message = tampu.current().message
    result = backend.get_result(message.id)
    task_started.send(type(backend), task_result=result)
    close_old_connections()
    try:
        task = backend.task(path, message)
        given = [TaskContext(task_result=result), *args] if task.takes_context else args
        value = normalize_json(task.call(*given, **kwargs))
    finally:
        close_old_connections()
    task_finished.send(type(backend), task_result=result)
    return value


def runner(backend: TampuBackend, queues: list[str] | None = None, concurrency: int = 8) -> Runner:
    """A worker for queues of the backend; `Runner.run` works until it is stopped."""
    names = sorted(queues or backend.queues)
    options = RunnerOptions(queues=dict.fromkeys(names, 1), concurrency=concurrency)
    return Runner(application(backend), options)
