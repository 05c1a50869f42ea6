"""Journals written by hand, for the cases that chance finds too seldom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
STATES = {
    "publish": "ready", "claim": "leased", "ack": "done", "nack": "delayed", "reject": "dead", "release": "ready",
    "reap": "ready", "promote": "ready", "expire": "expired", "cancel": "cancelled", "ask_cancel": "leased",
    "replay": "ready", "purge": None, "replace": "ready", "adopt": "ready",
}  # fmt: skip


class Telling:
    def __init__(self) -> None:
        self.events: list[Row] = []
        self.messages: list[Row] = []

    def tell(self, id: str, verb: str, seconds: float, **more: Any) -> Row:
        """One transition, so many seconds from midnight."""
        at = MIDNIGHT + timedelta(seconds=seconds)
        offset = len(self.events) + 1
        event = {
            "partition": "0", "offset": offset, "at": at, "queue": "jobs", "verb": verb, "id": id,
            "state": STATES.get(verb), "attempt": 0 if verb == "publish" else 1,
            "type": "job.run" if verb == "publish" else None, "worker": "w1" if verb == "claim" else None,
            "detail": None, "fingerprint": None, "run": "r", "day": at.date(), "tenant": "default",
        }  # fmt: skip
        event |= more
        self.events.append(event)
        if event["state"] in ("done", "dead", "cancelled", "expired"):
            self.messages.append(
                {
                    "id": id, "queue": event["queue"], "state": event["state"], "type": "from.body",
                    "payload": b"{}", "ended_at": at, "created_at": MIDNIGHT - timedelta(days=30), "missing": False,
                    "ended_partition": "0", "ended_offset": offset, "run": "r", "day": at.date(),
                    "tenant": event["tenant"],
                }
            )  # fmt: skip
        return event

    def story(self, id: str, *steps: tuple[str, float], **more: Any) -> None:
        for verb, seconds in steps:
            self.tell(id, verb, seconds, **more)
