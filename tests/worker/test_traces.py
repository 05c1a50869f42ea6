"""Spans of a worker, as a program sees them that sets up tracing in the module of its app."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import tampu
from tests.worker.crew import PATIENCE, wait

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_PARENT = f"00-{_TRACE}-b7ad6b7169203331-01"
_MODULE = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, ConsoleSpanExporter
import tampu

provider = TracerProvider()
spans = open(f"spans-{os.getpid()}.txt", "a")
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=spans)))
trace.set_tracer_provider(provider)
app = tampu.App("jobs.db")

@app.task(execution="process")
def in_child():
    in_thread.publish()

@app.task
def in_thread():
    pass

@app.task(max_attempts=1)
async def on_loop():
    raise ValueError("no network")
"""


def _spans(folder: Path) -> list[Any]:
    decoder, found = json.JSONDecoder(), []
    for file in folder.glob("spans-*.txt"):
        text = file.read_text().strip()
        while text:
            span, end = decoder.raw_decode(text)
            found.append(span)
            text = text[end:].strip()
    return found


def test_a_worker_and_its_children_leave_all_their_spans_in_the_trace_of_the_publisher(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(_MODULE)
    with tampu.open(tmp_path / "jobs.db") as store:
        for name in ("in_child", "on_loop"):
            store.publish("default", {}, type=name, headers={"traceparent": _PARENT})
        worker = subprocess.Popen(
            [sys.executable, "-c", "from tampu.cli.main import main; main()", "work", "traced:app", "--children", "1"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        )  # fmt: skip
        try:
            wait(lambda: (store.stats("default").done, store.stats("default").dead) == (2, 1))
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.wait()
    by_type = {one["attributes"]["tampu.type"]: one for one in _spans(tmp_path) if one["name"] == "process default"}
    assert by_type.keys() == {"in_child", "in_thread", "on_loop"}
    assert {one["context"]["trace_id"] for one in by_type.values()} == {f"0x{_TRACE}"}
    failed = by_type["on_loop"]
    assert failed["status"]["status_code"] == "ERROR"
    assert failed["events"][0]["attributes"]["exception.message"] == "no network"
    publishes = [one for one in _spans(tmp_path) if one["name"] == "publish default"]
    assert [one["parent_id"] for one in publishes] == [by_type["in_child"]["context"]["span_id"]]
    assert by_type["in_thread"]["parent_id"] == publishes[0]["context"]["span_id"]
    settled = [one for one in _spans(tmp_path) if one["attributes"].get("messaging.operation.type") == "settle"]
    assert {link["context"]["trace_id"] for one in settled for link in one["links"]} == {f"0x{_TRACE}"}
