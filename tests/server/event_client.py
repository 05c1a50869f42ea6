"""A client of the event feed, for tests: reads one event at a time, and can say where it stopped."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from typing import Any, NamedTuple


class Event(NamedTuple):
    kind: str
    id: str | None
    data: Any


class Listening:
    def __init__(
        self,
        url: str,
        token: str,
        *,
        after: str | None = None,
        tenant: str | None = None,
        cookie: str | None = None,
        **query: Any,
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        headers = {"Accept": "text/event-stream"}
        headers |= {"Authorization": f"Bearer {token}"} if cookie is None else {"Cookie": cookie}
        if after is not None:
            headers["Last-Event-ID"] = after
        if tenant is not None:
            headers["Tampu-Tenant"] = tenant
        self.connection.request(
            "GET", f"{parts.path}/v1/events?{urllib.parse.urlencode(query, doseq=True)}", headers=headers
        )
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.last: str | None = after
        """The id that a browser would send when it comes back."""
        self.gap: Any = None
        """What the beginning said is missing."""
        if self.status == 200:
            beginning = self._block() or {}
            if beginning.get("event") == "gap":
                self.gap = json.loads(beginning["data"])

    def next(self) -> Event | None:
        """The next event; None when the server has ended the feed."""
        while True:
            fields = self._block()
            if fields is None:
                return None
            if "data" in fields:
                return Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))

    def take(self, count: int) -> list[Event]:
        found = [self.next() for _ in range(count)]
        assert all(found), "the feed ended"
        return [event for event in found if event is not None]

    def beat(self) -> dict[str, str]:
        """The next block that is no event."""
        fields = self._block()
        assert fields is not None
        assert "data" not in fields
        return fields

    def problem(self) -> Any:
        return json.loads(self.answer.read())

    def close(self) -> None:
        self.connection.close()
        self.answer.close()

    def _block(self) -> dict[str, str] | None:
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            if line == "\n":
                if "id" in fields:
                    self.last = fields["id"]
                return fields
            name, _, value = line.rstrip("\n").partition(":")
            fields[name] = value.removeprefix(" ")
