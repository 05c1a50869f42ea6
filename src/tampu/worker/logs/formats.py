"""Log lines of the worker command: for people, or one JSON object each."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from tampu.worker.logs import attempts

_FIELDS = ("task", "message_id", "attempt")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    known = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
    return {**known, **getattr(record, "fields", {})}


class Plain(logging.Formatter):
    """12:30:01 warning  text  task=send message_id=…"""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        more = "".join(f"  {name}={value}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname.lower():8} {record.getMessage()}{more}"
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


class Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class Format(msgspec.Struct, frozen=True):
    """The chosen format; child processes use the same."""

    json: bool
    level: str | None


chosen: Format | None = None
"""None: the program has set up logging itself."""


def set_up(*, json: bool, level: str | None = None) -> None:
    """Log to standard error, unless the program has set up logging itself.

    Without a ``level``, attempts that failed are shown, and those that succeeded are not.
    """
    global chosen  # noqa: PLW0603 - as the root logger is
    root = logging.getLogger()
    if not root.handlers:
        chosen = Format(json, level)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(Json() if json else Plain())
        root.addHandler(handler)
        root.setLevel((level or "info").upper())
        if level is None:
            logging.getLogger(attempts.NAME).setLevel(logging.WARNING)
