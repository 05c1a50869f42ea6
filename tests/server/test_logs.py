"""Logs tell what happened, at any level and in any form, and never a key or a payload."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

import tampu
from tampu.server import logs
from tests.conformance.house import until
from tests.server.conftest import Start
from tests.server.web import Web
from tests.servers.http import settings_of

SECRET = "nobody-else-s-business"


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    """A server sets up the logs of its whole process, which here is the tests'."""
    loggers = [logging.getLogger(name) for name in ("tampu", "uvicorn", "websockets")]
    were = [(log.handlers[:], log.propagate, log.level) for log in loggers]
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)
    for log, (handlers, propagate, level) in zip(loggers, were, strict=True):
        log.handlers[:], log.propagate = handlers, propagate
        log.setLevel(level)


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("form", ["pretty", "json"])
def test_a_traceback_shows_no_values(start: Start, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    node = start()
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    logs.set_up(settings_of({"log_format": form}))

    async def broken(*_: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(node.node, "know", broken)
    assert Web(node.url, node.token).post("/v1/queues/jobs/messages", SECRET.encode()).status == 500
    until(lambda: "a defect" in told.getvalue())
    text = told.getvalue()
    assert "Traceback" in text
    assert SECRET not in text
    assert node.token[19:39] not in text.replace("\n", "")


def test_a_stream_at_debug_shows_neither_its_key_nor_what_is_pushed(tmp_path: Path) -> None:
    words = ["--json", "serve", "--port", "0", "--log-format", "json", "--log-level", "debug"]
    command = [sys.executable, "-c", "from tampu.cli.main import main; main()", *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TAMPU_")}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        token = (tmp_path / "tampu.db.key").read_text().strip()
        with tampu.open(url, token=token) as q, q.stream("jobs") as stream:
            q.publish("jobs", SECRET)
            lease = stream.next(60)
            assert lease is not None
            stream.ack(lease, SECRET).result(60)
        process.terminate()
        assert process.stderr is not None
        log = process.stderr.read().decode()
    assert "accepted" in log, "uvicorn's own lines are there"
    assert SECRET not in log
    assert token not in log
