"""Reads and checks the options of ``format("tampu")``. Spark passes them as text; names are case-insensitive."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from datetime import datetime

from tampu.model.errors import InvalidConfig

_IN_ADDRESS = re.compile(r"://[^:/@]*:[^@/]*@")
_SECRET = re.compile(r"pass|secret|token", re.IGNORECASE)


def has_password(url: str) -> bool:
    """True if the url may contain a secret. Such a url must not be written to files or logs."""
    query = url.partition("?")[2]
    return bool(_IN_ADDRESS.search(url)) or any(
        _SECRET.search(name) or has_password(value) for name, value in urllib.parse.parse_qsl(query)
    )


class Options:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._given.get(name.lower())
        return default if value is None or value == "" else value

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if value is None:
            raise InvalidConfig(f"the option {name} is missing", field=name, hint=f'.option("{name}", "{example}")')
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default) or default
        for choice in choices:
            if choice.lower() == value.lower():
                return choice
        raise InvalidConfig(f"{name} is {value!r}", field=name, hint=f"use one of {', '.join(choices)}")

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def whole(self, name: str, default: int | None, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        if not value.isdigit() or int(value) < least:
            raise InvalidConfig(f"{name} is {value!r}", field=name, hint=f"use a whole number, at least {least}")
        return int(value)

    def names(self, name: str) -> tuple[str, ...]:
        """A list separated by commas."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def time(self, name: str) -> int | None:
        """An ISO time with a zone, as microseconds since 1970."""
        value = self.text(name)
        if value is None:
            return None
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise InvalidConfig(f"{name} is {value!r}", field=name, hint="use a time with a zone: 2026-01-31T12:00:00Z")
        return round(at.timestamp() * 1_000_000)
