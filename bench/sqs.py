"""The protocol of SQS beside tampu's own HTTP verbs: the same server, one connection, batches of 10, in turns.

Requests are signed here, without an SDK, so that the server is what is measured. ElasticMQ comes with no package of
PyPI, Debian or npm, so it does not stand beside them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import urllib3

from bench.compare import processor_seconds, serving
from bench.measure import Row
from tampu.server.auth import keys
from tampu.server.sqs import signature

_BATCH = 10
_BODY = "x" * 160
_TYPE = "application/x-amz-json-1.0"


class _Sqs:
    def __init__(self, url: str, token: str) -> None:
        self._pool = urllib3.PoolManager(retries=False, maxsize=1)
        self._url, self._host = f"{url}/sqs", url.removeprefix("http://")
        parts = keys.split(token)
        assert parts is not None
        self._id, self._secret = f"tampu_{parts[0]}", keys.aws_secret(parts[1])
        self.queue: str = self("CreateQueue", QueueName="sqs")["QueueUrl"]

    def __call__(self, action: str, **given: Any) -> Any:
        body = msgspec.json.encode(given)
        at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"content-type": _TYPE, "host": self._host, "x-amz-date": at, "x-amz-target": f"AmazonSQS.{action}"}
        signed = signature.Signed(self._id, at[:8], "us-east-1", tuple(sorted(headers)), "")
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        made = signature.compute(self._secret, signed, at, signature.canonical("POST", b"/sqs", b"", raw, signed, body))
        scope = f"{self._id}/{at[:8]}/us-east-1/sqs/aws4_request"
        names = ";".join(signed.headers)
        headers["authorization"] = f"{signature.ALGORITHM} Credential={scope}, SignedHeaders={names}, Signature={made}"
        answer = self._pool.request("POST", self._url, headers=headers, body=body)
        assert answer.status == 200, answer.data
        return msgspec.json.decode(answer.data)

    def send(self) -> None:
        entries = [{"Id": str(n), "MessageBody": _BODY} for n in range(_BATCH)]
        self("SendMessageBatch", QueueUrl=self.queue, Entries=entries)

    def receive(self) -> list[str]:
        found = self("ReceiveMessage", QueueUrl=self.queue, MaxNumberOfMessages=_BATCH)["Messages"]
        return [message["ReceiptHandle"] for message in found]

    def delete(self, receipts: list[str]) -> None:
        entries = [{"Id": str(n), "ReceiptHandle": receipt} for n, receipt in enumerate(receipts)]
        self("DeleteMessageBatch", QueueUrl=self.queue, Entries=entries)


class _Own:
    def __init__(self, url: str, token: str) -> None:
        self._pool = urllib3.PoolManager(retries=False, maxsize=1)
        self._url = f"{url}/v1"
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def _ask(self, path: str, given: Any) -> Any:
        answer = self._pool.request("POST", self._url + path, headers=self._headers, body=msgspec.json.encode(given))
        assert answer.status == 200, answer.data
        return msgspec.json.decode(answer.data)

    def send(self) -> None:
        self._ask("/queues/own/publish", {"messages": [{"payload": _BODY}] * _BATCH})

    def receive(self) -> list[str]:
        found = self._ask("/claim", {"queues": "own", "limit": _BATCH})
        return [lease["receipt"] for lease in found["leases"]]

    def delete(self, receipts: list[str]) -> None:
        self._ask("/settle", {"settlements": [{"verb": "ack", "receipt": receipt} for receipt in receipts]})


def _measure(side: Any, pid: int, calls: int) -> dict[str, tuple[float, float]]:
    """By verb: (seconds, seconds of the server's processor) for ``calls`` batches."""
    found = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        began, used = time.perf_counter(), processor_seconds(pid)
        work()
        found[name] = time.perf_counter() - began, processor_seconds(pid) - used

    receipts: list[list[str]] = []
    timed("send", lambda: [side.send() for _ in range(calls)])
    timed("receive", lambda: receipts.extend(side.receive() for _ in range(calls)))
    timed("delete", lambda: [side.delete(each) for each in receipts])
    return found


def run(quick: bool) -> list[Row]:
    turns, calls = (2, 50) if quick else (5, 300)
    best: dict[tuple[str, str], tuple[float, float]] = {}
    tree = Path(__file__).parents[1]
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(tree, str(Path(folder) / "jobs.db"), "--sqs") as (url, token, pid),
    ):
        sides = {"sqs": _Sqs(url, token), "own": _Own(url, token)}
        for _ in range(turns):
            for name, side in sides.items():
                for verb, found in _measure(side, pid, calls).items():
                    known = best.get((verb, name), found)
                    best[verb, name] = min(known[0], found[0]), min(known[1], found[1])
    rows = []
    for verb in ("send", "receive", "delete"):
        (own, own_used), (sqs, sqs_used) = best[verb, "own"], best[verb, "sqs"]
        text = f"{calls * _BATCH / sqs:,.0f} messages/s; the server's processor {own_used / max(sqs_used, 0.001):.2f}"
        rows.append(Row(f"SQS {verb} / own HTTP verb, batches of {_BATCH}", own / sqs, "ratio", "", text))
    return rows
