"""`demo`: publishes example messages, runs workers, shows what happens, and leaves a store to explore."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import tampu
from tampu.cli.app import command, option
from tampu.cli.demo import lake as demo_lake
from tampu.cli.demo import server
from tampu.cli.demo.view import View
from tampu.cli.session import Session

DEMO_URL = "tampu-demo.db"
SERVED = ("webhooks", "emails", "reports")
WORKERS = 3
_TRICKLE_SECONDS = 1.0


class Workload:
    """The example messages: mostly normal, some delayed, urgent, broken or published twice."""

    def __init__(self, store: tampu.Store, time_scale: float) -> None:
        self._store = store
        self._time_scale = time_scale
        self._chance = random.Random(7)
        self._number = 0
        self.published = 0

    def prepare(self) -> None:
        time_scale = self._time_scale
        self._store.queues.put("emails", max_attempts=3, backoff=[0.4 * time_scale, 0.8 * time_scale], lease=10)
        self._store.queues.put(
            "webhooks", ordering="priority", backoff=tampu.exponential(0.2 * time_scale, jitter="full")
        )
        self._store.queues.put("reports", max_in_flight=1)

    def begin(self) -> str:
        """Publish the special messages. Returns the id of the one that will be dead-lettered."""
        store = self._store
        broken = store.publish("emails", {"to": "nobody@example.org", "subject": "Hello?"}, type="email.bounce")
        store.publish("reports", {"name": "weekly"}, type="report.build", delay=2 * self._time_scale)
        for to in ("draft", "final"):  # the second replaces the first, which still waits
            store.publish("reports", {"name": "nightly", "version": to}, type="report.build", key="nightly", delay=3600)
        for _ in range(2):  # idempotent: the second call returns the first message
            store.publish(
                "emails", {"to": "ada@example.org", "subject": "Welcome"}, type="email.send", idempotency_key="welcome"
            )
        store.publish("for-you", {"try": "claim me"}, type="note", key="for-you")
        self.published += 5
        return broken.id

    def more(self) -> None:
        """Publish a few normal messages, in one commit per queue."""
        self._number += 1
        n, chance = self._number, self._chance
        emails = [
            tampu.NewMessage({"to": f"user{n}.{i}@example.org", "subject": "News"}, type="email.send")
            for i in range(chance.randint(2, 4))
        ]
        hooks = [
            tampu.NewMessage(
                {"url": f"https://example.org/hook/{n}"}, type="webhook.call", priority=chance.choice((0, 0, 5, 9))
            )
            for _ in range(chance.randint(0, 3))
        ]
        self._store.publish_many("emails", emails)
        self._store.publish_many("webhooks", hooks)
        self.published += len(emails) + len(hooks)
        if n % 6 == 0:
            self._store.publish("reports", {"name": f"report {n}"}, type="report.build")
            self.published += 1


class Workers:
    """A few threads that claim and process messages."""

    def __init__(self, store: tampu.Store, time_scale: float) -> None:
        self._store = store
        self._time_scale = time_scale
        self._chance = random.Random(11)
        self._stop = threading.Event()
        self.done = 0
        self.failed = 0
        self._threads = [
            threading.Thread(target=self._run, args=(f"worker-{n}",), name=f"worker-{n}", daemon=True)
            for n in range(1, WORKERS + 1)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str) -> None:
        while not self._stop.is_set():
            for lease in self._store.claim(SERVED, limit=1, wait=0.2, worker=name):
                try:
                    result = self._process(lease)
                except ConnectionError as error:
                    self._store.nack(lease, error=error)
                    self.failed += 1
                else:
                    self._store.ack(lease, result=result)
                    self.done += 1

    def _process(self, lease: tampu.Lease) -> Any:
        kind = lease.message.type
        seconds = {"report.build": 0.25, "webhook.call": 0.05}.get(kind, 0.03)
        self._stop.wait(seconds * self._time_scale * (0.5 + self._chance.random()))
        if kind == "email.bounce":
            raise ConnectionError(f"550 no mailbox for {lease.payload['to']}")
        if kind == "webhook.call" and lease.attempt == 1 and self._chance.random() < 0.25:
            raise ConnectionError("503 the other side is busy")
        return {"pages": 12} if kind == "report.build" else None


@command("demo", "Maintain")
def demo(
    session: Session,
    fast: Annotated[bool, option("--fast", "Take about a second, without the lake")] = False,
    lake: Annotated[
        bool | None, option("--lake/--no-lake", "Run the pipeline, as a second act (default: if tampu[spark] is there)")
    ] = None,
    serve: Annotated[
        bool | None, option("--serve/--no-serve", "Serve the dashboard (default: if tampu[server] is installed)")
    ] = None,
) -> None:
    """Show queues at work for some seconds, in ./tampu-demo.db (or --url). The store stays for you to explore.

    A server shows the dashboard meanwhile; in a terminal, until you press Ctrl-C. The second act is the lake: the
    pipeline writes every transition to tables, and the insights are printed.
    """
    session = replace(session, url=session.url or DEMO_URL)
    wanted = server.possible() and not fast and not session.json if serve is None else serve
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(server.server(session)) if wanted else None
        store = stack.enter_context(served.open(session) if served else session.open_or_create(maintenance=True))
        show = Show(session, store, *((0.1, 0.8) if fast else (1.0, 8.0)))
        summary = show.run(served)
        if not session.json:
            _print_summary(session, summary)
        second = demo_lake.wanted() and not fast if lake is None else lake
        watched = served is not None and server.watched(session)
        with show.going_on() if watched or (second and served is not None) else contextlib.nullcontext():
            if second:
                try:
                    summary |= _second_act(session)
                except KeyboardInterrupt:
                    session.out.line("\nStopped before the lake was ready. The store stays; run it again to go on.")
                    return
            if session.json:
                session.out.document(summary)
            if served is not None and watched:
                server.stay(session, served)


def _second_act(session: Session) -> dict[str, Any]:
    if not session.json:
        session.out.line("\nSecond act: the lake. Every change of every message becomes a row of a table.", "bold")
    demo_lake.install(session)
    made = demo_lake.run(session)
    if not session.json:
        session.out.line("\nTry:\n")
        _print_commands(
            session,
            (("sql", "SELECT state, count(*) FROM silver.messages GROUP BY state"), "query the lake"),
            (("insights", "--html", "tampu-demo.html"), "a report with charts"),
        )
    return made


class Show:
    """Runs the example and draws the view."""

    def __init__(self, session: Session, store: tampu.Store, time_scale: float, seconds: float) -> None:
        self._session = session
        self._store = store
        self._time_scale = time_scale
        self._seconds = seconds
        self._work = Workload(store, time_scale)

    def run(self, served: server.Served | None) -> dict[str, Any]:
        """Run for some seconds. Returns a summary."""
        session, work, store = self._session, self._work, self._store
        workers = Workers(store, self._time_scale)
        work.prepare()
        began = time.monotonic()
        broken = work.begin()
        if not session.json:
            session.out.line(f"tampu {tampu.__version__}: opened {session.url}, starting {WORKERS} workers", "bold")
            if served is not None:
                session.out.line(f"Watch it in a browser (the link works once): {served.link() or served.url}", "bold")
        with View(session.out, store) as view:
            workers.start()
            try:
                while not _finished(store, time.monotonic() - began, self._seconds, broken):
                    if time.monotonic() - began < 0.7 * self._seconds:
                        work.more()
                    view.refresh(work.published, workers.done, workers.failed)
                    time.sleep(0.15 * self._time_scale)
            finally:
                workers.stop()
            view.refresh(work.published, workers.done, workers.failed)
        return {
            "url": session.url,
            "published": work.published,
            "done": workers.done,
            "failed_attempts": workers.failed,
            "seconds": round(time.monotonic() - began, 2),
            "dead_id": broken,
            "left": {s.queue: {"ready": s.ready, "delayed": s.delayed, "dead": s.dead} for s in store.stats()},
            **({} if served is None else {"server": served.url}),
        }

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """The workers, and a little to do, while the block runs."""
        workers, ended = Workers(self._store, self._time_scale), threading.Event()

        def trickle() -> None:
            while not ended.wait(_TRICKLE_SECONDS):
                self._work.more()

        publisher = threading.Thread(target=trickle, name="publisher", daemon=True)
        workers.start()
        publisher.start()
        try:
            yield
        finally:
            ended.set()
            publisher.join()
            workers.stop()


def _finished(store: tampu.Store, elapsed: float, seconds: float, broken: str) -> bool:
    """True if time is up, the broken message is dead and no normal message waits; or if it takes far too long."""
    if elapsed < seconds:
        return False
    waiting = sum(s.ready + s.leased + (s.delayed if s.queue != "reports" else 0) for s in _served(store))
    return elapsed > seconds + 15 or (not waiting and store.get(broken).state is tampu.State.DEAD)


def _served(store: tampu.Store) -> list[tampu.Stats]:
    return [s for s in store.stats() if s.queue in SERVED]


def _print_summary(session: Session, summary: dict[str, Any]) -> None:
    say = session.out.line
    say(
        f"\n{summary['published']} messages published, {summary['done']} done in {summary['seconds']:.1f} s;"
        f" {summary['failed_attempts']} attempts failed.",
        "bold",
    )
    say(f"Left in {session.url} for you: a dead message, one that is due in an hour, and one that is ready. Try:\n")
    _print_commands(
        session,
        (("stats",), "counts of all queues"),
        (("list", "emails", "--state", "dead"), "messages that failed"),
        (("show", summary["dead_id"]), "why, with traceback and history"),
        (("replay", "emails", "--all", "--dry-run"), "retry it (without --dry-run)"),
        (("claim", "for-you"), "claim the ready one, then ack its receipt"),
        (("list", "reports", "--state", "delayed"), "messages that are due later"),
        (("journal",), "everything that happened"),
        (("doctor",), "check the store"),
    )


def _print_commands(session: Session, *commands: tuple[tuple[str, ...], str]) -> None:
    for words, why in commands:
        session.out.line(f"  {session.command_line(*words):<52}  # {why}")
