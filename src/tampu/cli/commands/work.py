"""`tampu work`: a worker for the tasks of an app."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import tampu
from tampu.cli import parse
from tampu.cli.app import command
from tampu.cli.session import Session


@command(
    "work",
    "Work",
    "Exit codes: 0 stopped, all work finished or given back · 1 ended at once by a second signal, or work was left · "
    "2 the app or an option is wrong · 5 the store can not be used.",
)
def work(
    session: Session,
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the tampu.App is, such as shop.tasks:app")],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queues", "-q", metavar="NAME=WEIGHT,…", help="From these, in turns by weight (all of the app)"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Earlier queues first, always")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Tasks at once, in each process")] = 100,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1, max=1000, help="Worker processes")] = 1,
    children: Annotated[
        int | None, typer.Option("--children", help="Child processes for tasks that run in one (processors)")
    ] = None,
    memory: Annotated[int | None, typer.Option("--memory", metavar="MB", help="What a child may use")] = None,
    recycle: Annotated[int | None, typer.Option("--recycle", help="Messages after which a child is replaced")] = None,
    process_memory: Annotated[
        int | None, typer.Option("--process-memory", metavar="MB", min=1, help="A worker above this is replaced")
    ] = None,
    process_recycle: Annotated[
        int | None, typer.Option("--process-recycle", min=1, help="Messages after which a worker is replaced")
    ] = None,
    grace: Annotated[str, typer.Option("--grace", metavar="TIME", help="To finish what runs, when stopped")] = "30",
    lease: Annotated[str | None, typer.Option("--lease", metavar="TIME", help="Of each claim (the queues')")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Who works (host:pid)")] = None,
    unknown: Annotated[str, typer.Option("--unknown", help="Messages without a task: retry or reject")] = "retry",
    alive_file: Annotated[
        Path | None, typer.Option("--alive-file", help="Touched every 2 s while the worker moves")
    ] = None,
    alive_port: Annotated[int | None, typer.Option("--alive-port", help="Answers /live and /ready over HTTP")] = None,
    alive_host: Annotated[str, typer.Option("--alive-host", help="The address of that port")] = "127.0.0.1",
    live: Annotated[bool, typer.Option("--live", help="Show in the terminal what goes on")] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when a Python file here changes")] = False,
) -> None:
    """Call the tasks of an app for the messages of its queues, until stopped by SIGTERM or Ctrl-C."""
    from tampu.worker import queue_order
    from tampu.worker.process import run, supervisor
    from tampu.worker.process.logs import set_up

    pipe = os.environ.pop(run.PICTURES, None)
    set_up(json=session.json, quiet=live or pipe is not None)
    ceiling = run.Ceiling(process_memory, process_recycle)
    if (processes > 1 or reload or ceiling != run.Ceiling()) and run.PARENT not in os.environ:
        words = [word for word in sys.argv[1:] if word != "--live"]
        again = [sys.executable, "-c", "from tampu.cli.main import main; main()", *words]
        watch = supervisor.changes(Path.cwd()) if reload else None
        if not live:
            raise typer.Exit(supervisor.Supervisor(again, processes, watch).run())
        from tampu.worker.process.live import Frame, shown

        boss = supervisor.Supervisor(again, processes, watch, Frame)
        with shown(boss.pictures):
            code = boss.run()
        raise typer.Exit(code)
    found = run.load(app)
    if session.url is not None:
        found.url = session.url
    if session.tenant is not None:
        found.tenant = session.tenant
    options = tampu.RunnerOptions(
        queues=None if not queues else queue_order.parse(queues),
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
    signs = run.Signs(alive_file, alive_port, alive_host)
    try:
        with contextlib.ExitStack() as seen:
            if live or pipe is not None:
                from tampu.worker.process.live import picture, shown, told

                seen.enter_context(
                    shown(lambda: [picture(runner)], after=runner.started) if pipe is None else told(runner, int(pipe))
                )
            code = run.run(runner, signs, ceiling)
        run.close(found, code)
    finally:
        found.close()
        logging.shutdown()
    raise typer.Exit(code)
