"""`demo`: a queue at work. Publishes an example, runs workers, shows what happens, and leaves a file to look into."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from dataclasses import replace
from typing import Annotated, Any

import typer

import tampu
from tampu.cli.app import command
from tampu.cli.demo import lake as demo_lake
from tampu.cli.demo import server
from tampu.cli.demo.view import View
from tampu.cli.session import Session

DEMO_URL = "tampu-demo.db"
SERVED = ("webhooks", "emails", "reports")
WORKERS = 3


class Workload:
    """What is handed in: mostly good, some of it late, urgent, broken or said twice."""

    def __init__(self, store: tampu.Store, pace: float) -> None:
        self._q = store
        self._pace = pace
        self._chance = random.Random(7)
        self._number = 0
        self.published = 0

    def prepare(self) -> None:
        pace = self._pace
        self._q.queues.put("emails", max_attempts=3, backoff=[0.4 * pace, 0.8 * pace], lease=10)
        self._q.queues.put("webhooks", ordering="priority", backoff=tampu.exponential(0.2 * pace, jitter="full"))
        self._q.queues.put("reports", max_in_flight=1)

    def begin(self) -> str:
        """The messages with a story; the id of the one that will end dead."""
        store = self._q
        broken = store.publish("emails", {"to": "nobody@example.org", "subject": "Hello?"}, type="email.bounce")
        store.publish("reports", {"name": "weekly"}, type="report.build", delay=2 * self._pace)
        for to in ("draft", "final"):  # the second replaces the first, which has not begun
            store.publish("reports", {"name": "nightly", "version": to}, type="report.build", key="nightly", delay=3600)
        for _ in range(2):  # safe to say twice: the second is answered with the first
            store.publish(
                "emails", {"to": "ada@example.org", "subject": "Welcome"}, type="email.send", idempotency_key="welcome"
            )
        store.publish("for-you", {"try": "claim me"}, type="note", key="for-you")
        self.published += 5
        return broken.id

    def more(self) -> None:
        """A handful of everyday messages, in one commit per queue."""
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
        self._q.publish_many("emails", emails)
        self._q.publish_many("webhooks", hooks)
        self.published += len(emails) + len(hooks)
        if n % 6 == 0:
            self._q.publish("reports", {"name": f"report {n}"}, type="report.build")
            self.published += 1


class Workers:
    """A few threads that claim and carry out."""

    def __init__(self, store: tampu.Store, pace: float) -> None:
        self._q = store
        self._pace = pace
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
            for lease in self._q.claim(SERVED, limit=1, wait=0.2, worker=name):
                try:
                    result = self._carry_out(lease)
                except ConnectionError as error:
                    self._q.nack(lease, error=error)
                    self.failed += 1
                else:
                    self._q.ack(lease, result=result)
                    self.done += 1

    def _carry_out(self, lease: tampu.Lease) -> Any:
        kind = lease.message.type
        seconds = {"report.build": 0.25, "webhook.call": 0.05}.get(kind, 0.03)
        self._stop.wait(seconds * self._pace * (0.5 + self._chance.random()))
        if kind == "email.bounce":
            raise ConnectionError(f"550 no mailbox for {lease.payload['to']}")
        if kind == "webhook.call" and lease.attempt == 1 and self._chance.random() < 0.25:
            raise ConnectionError("503 the other side is busy")
        return {"pages": 12} if kind == "report.build" else None


@command("demo", "Care")
def demo(
    session: Session,
    fast: Annotated[bool, typer.Option("--fast", help="Be done in about a second, without the lake")] = False,
    lake: Annotated[
        bool | None,
        typer.Option("--lake/--no-lake", help="Have Spark bring it to tables in the end (if tampu[spark] is there)"),
    ] = None,
    serve: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="Serve it, with a page to watch it on (if tampu[server] is there)"),
    ] = None,
) -> None:
    """A queue at work for some seconds, in ./tampu-demo.db (or --url), which stays for you to look into.

    A server shows it on a page meanwhile; on a terminal, until you press Ctrl-C. Then the pipeline runs over what
    happened, and gold is shown.
    """
    session = replace(session, url=session.url or DEMO_URL)
    wanted = server.possible() and not fast and not session.json if serve is None else serve
    with contextlib.ExitStack() as held:
        served = held.enter_context(server.server(session)) if wanted else None
        store = held.enter_context(session.make(maintenance=True) if served is None else served.open(session))
        show = Show(session, store, *((0.1, 0.8) if fast else (1.0, 8.0)))
        told = show.run(served)
        if demo_lake.possible() and not fast if lake is None else lake:
            told |= demo_lake.run(session)
        if session.json:
            session.out.document(told)
            return
        _farewell(session, told)
        if served is not None and server.watched(session):
            show.go_on(served)


class Show:
    """The example at work, with a view of it."""

    def __init__(self, session: Session, store: tampu.Store, pace: float, seconds: float) -> None:
        self._session = session
        self._q = store
        self._pace = pace
        self._seconds = seconds
        self._work = Workload(store, pace)

    def run(self, served: server.Served | None) -> dict[str, Any]:
        """Some seconds of it; what came of them."""
        session, work, store = self._session, self._work, self._q
        workers = Workers(store, self._pace)
        work.prepare()
        began = time.monotonic()
        broken = work.begin()
        if not session.json:
            session.out.say(f"tampu {tampu.__version__}: {session.url} is open, {WORKERS} workers start", "bold")
            if served is not None:
                session.out.say(f"See it in your browser (the link works once): {served.link() or served.url}", "bold")
        with View(session.out, store) as view:
            workers.start()
            try:
                while not _over(store, time.monotonic() - began, self._seconds, broken):
                    if time.monotonic() - began < 0.7 * self._seconds:
                        work.more()
                    view.refresh(work.published, workers.done, workers.failed)
                    time.sleep(0.15 * self._pace)
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

    def go_on(self, served: server.Served) -> None:
        """More of it, for a person who looks on."""
        workers = Workers(self._q, self._pace)
        workers.start()
        try:
            server.stay(self._session, served, self._work.more)
        finally:
            workers.stop()


def _over(store: tampu.Store, elapsed: float, seconds: float, broken: str) -> bool:
    """The time is up, the broken one is dead, and nothing of the everyday work waits (or it takes far too long)."""
    if elapsed < seconds:
        return False
    waiting = sum(s.ready + s.leased + (s.delayed if s.queue != "reports" else 0) for s in _served(store))
    return elapsed > seconds + 15 or (not waiting and store.get(broken).state is tampu.State.DEAD)


def _served(store: tampu.Store) -> list[tampu.Stats]:
    return [s for s in store.stats() if s.queue in SERVED]


def _farewell(session: Session, summary: dict[str, Any]) -> None:
    say = session.out.say
    lake = (
        (("sql", "SELECT state, count(*) FROM silver.messages GROUP BY state"), "ask the lake"),
        (("insights", "--html", "tampu-demo.html"), "a report with pictures"),
    )
    say(
        f"\n{summary['published']} messages handed in, {summary['done']} carried out in {summary['seconds']:.1f} s;"
        f" {summary['failed_attempts']} attempts failed and were tried again.",
        "bold",
    )
    say(f"Left in {session.url} for you: a dead letter, a message due in an hour, and one that is ready. Try:\n")
    for words, why in (
        (("stats",), "the queues in numbers"),
        (("list", "emails", "--state", "dead"), "what has failed for good"),
        (("show", summary["dead_id"]), "why, with traceback and history"),
        (("replay", "emails", "--all", "--dry-run"), "let it run again (without --dry-run)"),
        (("claim", "for-you"), "take the ready one, then ack its receipt"),
        (("list", "reports", "--state", "delayed"), "what is due later"),
        (("journal",), "everything that happened"),
        (("doctor",), "is the file sound?"),
        *(lake if "lake" in summary else ()),
    ):
        say(f"  {session.call(*words):<52}  # {why}")
