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
from tests.conformance.harness import until
from tests.server.conftest import Start
from tests.server.web import Answer, Web
from tests.servers.http import Server, settings_of

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
    logged = io.StringIO()
    monkeypatch.setattr(sys, "stderr", logged)
    logs.set_up(settings_of({"log_format": form}))

    async def broken(*_: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(node.state, "load_settings", broken)
    assert Web(node.url, node.token).post("/v1/queues/jobs/messages", SECRET.encode()).status == 500
    until(lambda: "a defect" in logged.getvalue())
    text = logged.getvalue()
    assert "Traceback" in text
    assert SECRET not in text
    assert node.token[19:39] not in text.replace("\n", "")


class Logged:
    """The log of this process, in one of its forms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, form: str = "json") -> None:
        self._text = io.StringIO()
        monkeypatch.setattr(sys, "stderr", self._text)
        logs.set_up(settings_of({"log_format": form, "access_log": True}))

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def line(self, answer: Answer) -> dict[str, Any]:
        """Of the request that was answered so; it is written when the answer has gone."""
        found: list[dict[str, Any]] = []

        def came() -> bool:
            lines = [json.loads(line) for line in self.text.splitlines()]
            found[:] = [
                line for line in lines
                if line["event"] == "request" and line["request_id"] == answer.headers["x-request-id"]
            ]  # fmt: skip
            return bool(found)

        until(came)
        (line,) = found
        return line

    def about(self, answer: Answer) -> tuple[Any, Any]:
        line = self.line(answer)
        return line["queue"], line["message"]


@pytest.mark.usefixtures("_as_it_was")
def test_the_access_log_names_queues_and_messages(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start(access_log=True)
    logged = Logged(monkeypatch)
    web = Web(node.url, node.token)
    one = web.post("/v1/queues/jobs/messages", SECRET.encode())
    id = one.json["id"]
    assert logged.about(one) == ("jobs", id)
    again = web.post("/v1/queues/jobs/messages", SECRET.encode())
    assert logged.about(again) == ("jobs", again.json["id"])
    many = web.post("/v1/queues/jobs/publish", {"messages": [{"payload": SECRET} for _ in range(8)]})
    ids = [m["id"] for m in many.json["messages"]]
    assert logged.about(many) == ("jobs", ",".join([*ids[:5], "..."]))
    claimed = web.post("/v1/claim", {"queues": ["other", "jobs"]})
    (lease,) = claimed.json["leases"]
    assert logged.about(claimed) == ("other,jobs", id)
    extended = web.post("/v1/extend", {"leases": [{"receipt": lease["receipt"], "by": 30}]})
    assert logged.about(extended) == ("jobs", None)
    settled = web.post("/v1/settle", {"settlements": [{"verb": "reject", "receipt": lease["receipt"]}]})
    assert logged.about(settled) == ("jobs", id)
    for path in (f"/v1/messages/{id}", f"/v1/messages/{id}/result", f"/v1/messages/{id}/note"):
        assert logged.about(web.get(path)) == ("jobs", id)
    assert logged.about(web.get("/v1/queues/jobs/stats")) == ("jobs", None)
    assert logged.about(web.post("/v1/queues/jobs/replay", {"ids": [id]})) == ("jobs", id)
    assert logged.about(web.post("/v1/messages/cancel", {"ids": ids[:2]})) == (None, ",".join(ids[:2]))
    put = web.request("PUT", "/v1/schedules/nightly", {"queue": "jobs", "message": {"payload": 1}, "every": 3600})
    assert logged.about(put) == ("jobs", None)
    fired = web.post("/v1/schedules/nightly/fire", {})
    assert logged.about(fired) == ("jobs", fired.json["id"])
    assert logged.about(web.get("/v1/keys")) == (None, None)
    assert logged.about(web.get("/v1/messages/0190a1b2-0000-7000-8000-000000000000"))[1].startswith("0190a1b2")
    assert logged.about(web.as_key(None).get("/v1/queues/jobs/stats")) == ("jobs", None), "also of those it turns away"
    for secret in (SECRET, lease["receipt"], node.token[19:]):
        assert secret not in logged.text


@pytest.mark.usefixtures("_as_it_was")
def test_the_access_log_has_a_line_for_each_stream_of_a_worker(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = start(access_log=True)
    logged = Logged(monkeypatch)
    web = Web(node.url, node.token)

    def lines() -> list[dict[str, Any]]:
        written = [json.loads(line) for line in logged.text.splitlines()]
        return [line for line in written if line["event"] == "request" and line["route"] == "/v1/stream"]

    web.post("/v1/queues/jobs/messages", SECRET.encode())
    with tampu.open(node.url, token=node.token) as store, store.stream(["other", "jobs"]) as stream:
        lease = next(iter(stream))
        stream.ack(lease)
        assert lines() == [], "it is written at the end"
    until(lambda: len(lines()) == 1)
    (line,) = lines()
    assert (line["method"], line["status"], line["queue"], line["tenant"]) == ("STREAM", 101, "other,jobs", "default")
    assert line["key"] is not None
    assert line["request_id"]
    assert line["milliseconds"] > 0
    with tampu.open(node.url, token=web.key("view")) as store, pytest.raises(tampu.Forbidden), store.stream("jobs"):
        pass
    until(lambda: len(lines()) == 2)
    assert (lines()[1]["status"], lines()[1]["queue"]) == (403, None)
    for secret in (SECRET, lease.receipt, node.token[19:]):
        assert secret not in logged.text


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("form", ["pretty", "json"])
def test_names_in_the_access_log_are_short_and_of_one_line(
    start: Start, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    node = start(access_log=True)
    logged = Logged(monkeypatch, form)
    web = Web(node.url, node.token)
    strange = "a%0Aforged%1b%5B31m" + "x" * 3000
    for path in (f"/v1/queues/{strange}/messages", f"/v1/queues/{strange}/pause", f"/v1/messages/{strange}/note"):
        web.post(path, {"n": 1})
    web.get(f"/v1/messages/{strange}")
    web.post("/v1/claim", {"queues": ["b\nforged"]})
    web.get("/v1/me")
    until(lambda: "/v1/me" in logged.text)
    lines = logged.text.splitlines()
    assert not [line for line in lines if line.startswith(("forged", "\x1b[31m"))]
    assert sum("forged" in line for line in lines) >= 4
    assert max(map(len, lines)) < 1000


@pytest.mark.usefixtures("_as_it_was")
def test_a_failure_names_the_queue_without_an_access_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(url=str(tmp_path / "jobs.db"))
    try:
        logged = Logged(monkeypatch)
        web = Web(server.url, server.token)
        engine = server.state.core.engine
        for path in ("/v1/queues/jobs/messages", "/v1/queues/jobs/messages"):  # the second may take the express
            assert web.post(path, {"n": 1}).status == 201
        with monkeypatch.context() as broken:
            broken.setattr(engine, "run", _full)
            for path in ("/v1/queues/jobs/messages", "/v1/queues/jobs/purge"):
                failed = web.post(path, {"states": ["ready"]})
                assert failed.status == 507
                line = logged.line(failed)
                assert (line["queue"], line["tenant"]) == ("jobs", "default")
                assert line["key"] == server.token.split("_")[1]
    finally:
        server.stop()


def _full(*_: Any) -> None:
    raise tampu.StorageFull("no room")


def test_a_stream_at_debug_shows_neither_its_key_nor_what_is_pushed(tmp_path: Path) -> None:
    words = ["--json", "serve", "--port", "0", "--log-format", "json", "--log-level", "debug"]
    command = [sys.executable, "-c", "from tampu.cli.main import main; main()", *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith("TAMPU_")}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        token = (tmp_path / "tampu.db.key").read_text().strip()
        with tampu.open(url, token=token) as store, store.stream("jobs") as stream:
            store.publish("jobs", SECRET)
            lease = stream.next(60)
            assert lease is not None
            stream.ack(lease, SECRET).result(60)
        process.terminate()
        assert process.stderr is not None
        log = process.stderr.read().decode()
    assert "accepted" in log, "uvicorn's own lines are there"
    assert SECRET not in log
    assert token not in log
