"""`tampu work`: a worker for the tasks of an app."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import tampu
from tampu.cli import parse
from tampu.cli.app import command, option
from tampu.cli.commands.work import startup
from tampu.cli.session import Session

_LEVELS = ("debug", "info", "warning", "error")


@command(
    "work",
    "Work",
    "Exit codes: 0 stopped, all messages finished or released · 1 killed by a second signal, or messages could not be "
    "settled · 2 the app or an option is wrong · 5 the store cannot be used.",
)
def work(
    session: Session,
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="The tampu.App, such as shop.tasks:app")],
    queues: Annotated[
        list[str] | None, option("--queues", "-q", "Queues, in turns by weight (default: all)", metavar="NAME=WEIGHT,…")
    ] = None,
    strict: Annotated[bool, option("--strict", "Always take from earlier queues first")] = False,
    concurrency: Annotated[int, option("--concurrency", "-c", "Maximum tasks at once per process")] = 100,
    processes: Annotated[int, option("--processes", "-p", "Worker processes", min=1, max=1000)] = 1,
    children: Annotated[
        int | None, option("--children", "Child processes for execution=process (default: CPUs)")
    ] = None,
    memory: Annotated[int | None, option("--memory", "Memory limit of a child", metavar="MB")] = None,
    recycle: Annotated[int | None, option("--recycle", "Replace a child after this many messages")] = None,
    process_memory: Annotated[
        int | None, option("--process-memory", "Replace a worker that uses more memory", metavar="MB", min=1)
    ] = None,
    process_recycle: Annotated[
        int | None, option("--process-recycle", "Replace a worker after this many messages", min=1)
    ] = None,
    grace: Annotated[str, option("--grace", "Time to finish tasks when stopped", metavar="TIME")] = "30s",
    lease: Annotated[str | None, option("--lease", "Lease (default: the queues')", metavar="TIME")] = None,
    name: Annotated[str | None, option("--name", "Name of the worker (default: host:pid)")] = None,
    unknown: Annotated[str, option("--unknown", "Messages without a task: retry or reject")] = "retry",
    alive_file: Annotated[
        Path | None, option("--alive-file", "Touch this file every 2 s while the worker runs")
    ] = None,
    alive_port: Annotated[int | None, option("--alive-port", "Serve /live and /ready on this port")] = None,
    alive_host: Annotated[str, option("--alive-host", "Address for --alive-port and --metrics-port")] = "127.0.0.1",
    log_level: Annotated[
        str | None,
        option("--log-level", "debug, info, warning or error; info shows each success", metavar="LEVEL"),
    ] = None,
    metrics_port: Annotated[
        int | None, option("--metrics-port", "Serve Prometheus metrics on this port", min=1, max=65535)
    ] = None,
    live: Annotated[bool, option("--live", "Show tasks and queues in the terminal")] = False,
    reload: Annotated[bool, option("--reload", "Restart when a Python file here changes")] = False,
) -> None:
    """Run the tasks of an app for the messages of its queues, until SIGTERM or Ctrl-C."""
    from tampu.worker.logs.formats import set_up
    from tampu.worker.prefetch import parse_queues
    from tampu.worker.process import run, supervisor

    pipe = os.environ.pop(run.SNAPSHOTS, None)
    if log_level not in (None, *_LEVELS):
        raise tampu.InvalidConfig(f"no log level {log_level}", field="log_level", hint=f"one of: {', '.join(_LEVELS)}")
    set_up(json=session.json, level="error" if live or pipe is not None else log_level)
    if metrics_port is not None and processes > 1:
        raise tampu.InvalidConfig(
            "--metrics-port is for one process",
            field="metrics_port",
            hint="start several tampu work with a port each, or leave out --processes",
        )
    limits = run.Limits(process_memory, process_recycle)
    if (processes > 1 or reload or limits != run.Limits()) and run.PARENT not in os.environ:
        words = [word for word in sys.argv[1:] if word != "--live"]
        restart = [sys.executable, "-c", "from tampu.cli.main import main; main()", *words]
        watch = supervisor.changes(Path.cwd()) if reload else None
        if not live:
            raise typer.Exit(supervisor.Supervisor(restart, processes, watch).run())
        from tampu.worker.process.live import SnapshotReader, shown

        workers = supervisor.Supervisor(restart, processes, watch, SnapshotReader)
        with shown(workers.snapshots):
            code = workers.run()
        raise typer.Exit(code)
    found = run.load(app)
    if session.url is not None:
        found.url = session.url
    if session.tenant is not None:
        found.tenant = session.tenant
    if session.token is not None:
        found.token = session.token
    options = tampu.RunnerOptions(
        queues=None if not queues else parse_queues(queues),
        strict=strict,
        concurrency=concurrency,
        grace=parse.duration(grace, "grace"),
        lease=parse.optional_duration(lease, "lease"),
        name=name,
        unknown=unknown,
        memory=memory,
        recycle=recycle,
        children=children or os.cpu_count() or 1,
    )
    runner = tampu.Runner(found, options)
    session = replace(session, url=None if found.url is None else os.fspath(found.url))
    is_new = session.is_new()
    checks = run.HealthChecks(alive_file, alive_port, alive_host)
    try:
        startup.report(runner, session, is_new=is_new)
        if metrics_port is not None:
            from tampu.worker.process import metrics

            metrics.serve(runner, metrics_port, alive_host)
        with contextlib.ExitStack() as view:
            if live or pipe is not None:
                from tampu.worker.process.live import sent_to_supervisor, shown, snapshot

                view.enter_context(
                    shown(lambda: [snapshot(runner)], after=runner.started)
                    if pipe is None
                    else sent_to_supervisor(runner, int(pipe))
                )
            code = run.run(runner, checks, limits)
        run.close(found, code)
    finally:
        found.close()
        logging.shutdown()
    raise typer.Exit(code)
