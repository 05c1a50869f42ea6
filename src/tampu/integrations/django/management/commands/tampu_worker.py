"""``manage.py tampu_worker``: carries out tasks until it is stopped."""

from __future__ import annotations

import logging
import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tampu.integrations.django import worker
from tampu.integrations.django.backend import TampuBackend


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Carries out tasks until it is stopped: Ctrl-C or SIGTERM ends it when the running ones are done."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="the backend, as in TASKS (default: default)")
        parser.add_argument("--queue", action="append", help="only this queue (may be given again)")
        parser.add_argument("--concurrency", type=int, default=8, help="tasks at once (default: 8)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            from django.tasks import task_backends
        except ImportError:
            from django_tasks import task_backends
        backend = task_backends[options["backend"]]
        if not isinstance(backend, TampuBackend):
            raise CommandError(f"the backend {options['backend']} is not tampu's: see TASKS in your settings")
        unknown = set(options["queue"] or ()) - backend.queues
        if unknown:
            raise CommandError(f"no queue {sorted(unknown)[0]}; QUEUES has {', '.join(sorted(backend.queues))}")
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        runner = worker.runner(backend, options["queue"], options["concurrency"])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: runner.stop())
        runner.run()
