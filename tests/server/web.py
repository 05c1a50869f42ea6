"""Asking a server by hand: plain requests, no client of ours."""

from __future__ import annotations

from typing import Any

import msgspec
import urllib3

JSON = "application/json"
MSGPACK = "application/msgpack"


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.raw)

    @property
    def msgpack(self) -> Any:
        return msgspec.msgpack.decode(self.raw)

    @property
    def code(self) -> str:
        """Of a problem, which must be a whole one."""
        assert self.headers["content-type"] == "application/problem+json", self.raw
        body = self.json
        assert body["status"] == self.status
        assert body["request_id"] == self.headers["x-request-id"]
        assert body["detail"]
        return str(body["code"])


class Web:
    def __init__(self, url: str, token: str | None = None, **headers: str) -> None:
        self.url = url
        self.headers = dict(headers)
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(retries=False, maxsize=20)

    def as_key(self, token: str | None, **headers: str) -> Web:
        return Web(self.url, token, **headers)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A body that is not bytes is sent as JSON."""
        given = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            given.setdefault("content-type", JSON)
        answer = self._pool.request(method, self.url + path, body=body, headers=given, redirect=False, timeout=60)
        return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.data)

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.request("POST", path, body, **headers)

    def key(self, *grants: str, **more: Any) -> str:
        """A new key with grants such as ``publish:orders.*``; its token."""
        made = []
        for grant in grants:
            permissions, _, queues = grant.partition(":")
            made.append({"permissions": permissions.split(","), "queues": queues.split(",") if queues else ["*"]})
        answer = self.post("/v1/keys", {"name": "test", "grants": made, **more})
        assert answer.status == 201, answer.raw
        return str(answer.json["token"])
