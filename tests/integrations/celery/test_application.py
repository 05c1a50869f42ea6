"""A whole application of Celery with real workers: results, retries, canvas, control, and workers that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.result import AsyncResult

import tampu
from tampu.integrations.celery import stores
from tests.conformance.harness import until
from tests.servers.redis import Server, redis_binary

ROOT = Path(__file__).parents[3]
_SECONDS = 240
_SHOP = "tests.integrations.celery.shop"
Work = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A file, or what a test has chosen. The transport only uses the library, which is tested on all engines."""
    if getattr(request, "param", "file") == "file":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    server = Server(redis_binary()).start()
    yield server.url(prefix="celery")
    server.remove()


@pytest.fixture
def work(url: str, tmp_path: Path) -> Iterator[Work]:
    """Starts workers; they end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        **os.environ, "BROKER": f"tampu+{url}", "BACKEND": f"tampu+{url}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }  # fmt: skip

    def worker(*options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", _SHOP, "worker", "-l", "warning", *options]
        command += ["-n", f"w{len(started)}@here"]
        started.append(
            subprocess.Popen(
                command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        return started[-1]

    yield worker
    for each in started:
        each.terminate()
    for each in started:
        try:
            each.wait(60)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    """The same application, as another program has it."""
    made = Celery("shop", broker_url=f"tampu+{url}", result_backend=f"tampu+{url}", set_as_current=False)
    made.conf.update(result_expires=3600)
    yield made
    made.close()
    stores.close_all()


def _send(app: Celery, name: str, *args: Any, **options: Any) -> AsyncResult:
    return app.send_task(f"{_SHOP}.{name}", args, **options)


def _call(app: Celery, name: str, *args: Any) -> Any:
    return app.signature(f"{_SHOP}.{name}", args=args)


def test_an_application_works_as_on_other_brokers(app: Celery, url: str, work: Work) -> None:
    work("--concurrency", "2")  # processes
    assert _send(app, "add", 1, 2).get(timeout=_SECONDS) == 3
    failed = _send(app, "fail")
    with pytest.raises(ValueError, match="no such order"):
        failed.get(timeout=_SECONDS)
    assert (failed.state, "ValueError" in failed.traceback) == ("FAILURE", True)
    assert _send(app, "flaky").get(timeout=_SECONDS) == 2
    assert _send(app, "add", 1, 1, countdown=0.5).get(timeout=_SECONDS) == 2
    linked = chain(_call(app, "add", 1, 2), _call(app, "add", 4)).apply_async()
    assert linked.get(timeout=_SECONDS) == 7
    many = group(_call(app, "add", n, n) for n in range(5)).apply_async()
    assert many.get(timeout=_SECONDS) == [0, 2, 4, 6, 8]
    joined = chord([_call(app, "add", n, n) for n in range(5)], _call(app, "total")).apply_async()
    assert joined.get(timeout=_SECONDS) == 20

    assert app.control.ping(timeout=5) == [{"w0@here": {"ok": "pong"}}]
    registered = app.control.inspect(timeout=5).registered() or {}
    assert f"{_SHOP}.add" in registered["w0@here"]
    held = _send(app, "add", 1, 1, countdown=3600)
    app.control.revoke(held.id)
    assert held.state == "PENDING"

    with tampu.open(url, maintenance=False) as store:
        (message,) = store.messages("celery", state="delayed")
        assert message.type == f"{_SHOP}.add"
        assert store.stats("celery").dead == 0
        result = next(
            m for m in store.messages("celery-results", state="held", limit=1000) if failed.id in (m.source or "")
        )
        assert result.expires_at is not None


@pytest.mark.parametrize("url", ["redis"], indirect=True)
def test_a_long_task_runs_once_and_that_of_a_killed_worker_again(
    app: Celery, work: Work, url: str, tmp_path: Path
) -> None:
    """A lease is three seconds here; the first task takes several of them."""
    path, end = tmp_path / "began", tmp_path / "end"

    def began(text: str) -> list[str]:
        return [line for line in path.read_text().splitlines() if line.startswith(text)] if path.exists() else []

    first = work("--pool", "solo")
    long = _send(app, "note", str(path), "long", str(end))
    until(lambda: began("long"), _SECONDS)
    with tampu.open(url, maintenance=False) as store:

        def leased_until() -> int:
            (message,) = store.messages("celery", state="leased")
            return message.lease_until_us or 0

        first_end = leased_until()
        until(lambda: leased_until() > first_end + 3_000_000, _SECONDS)  # after the end of the first lease
    end.touch()
    assert long.get(timeout=_SECONDS) == first.pid
    assert len(began("long")) == 1

    end.unlink()
    lost = _send(app, "note", str(path), "lost", str(end))
    until(lambda: began("lost"), _SECONDS)
    first.kill()
    first.wait(60)
    end.touch()
    second = work("--pool", "solo")
    assert lost.get(timeout=_SECONDS) == second.pid
    assert len(began("lost")) == 2
