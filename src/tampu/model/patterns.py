"""Name patterns, in which ``*`` matches any characters.

Not regular expressions: with several stars their time can grow exponentially, and would block the event loop.
"""

from __future__ import annotations

from tampu.model.errors import InvalidMessage

_MAX_LENGTH = 200
_MAX_STARS = 8


class Pattern:
    """Matches whole names, in one pass."""

    __slots__ = ("_first", "_last", "_middle", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        parts = text.split("*")
        self._first = parts[0]
        self._middle = parts[1:-1]
        self._last = parts[-1] if len(parts) > 1 else None
        """None if there is no star."""

    def matches(self, name: str) -> bool:
        first, last = self._first, self._last
        if last is None:
            return name == first
        at, end = len(first), len(name) - len(last)
        if at > end or not name.startswith(first) or not name.endswith(last):
            return False
        for part in self._middle:  # the first match is the best: it leaves the most for the parts that follow
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


def parse(text: str, field: str) -> Pattern:
    """A pattern from a request; refuses one that is too long."""
    if len(text) > _MAX_LENGTH or text.count("*") > _MAX_STARS:
        raise InvalidMessage(
            f"the pattern {text!r:.60} is too long",
            field=field,
            hint=f"use at most {_MAX_LENGTH} characters and {_MAX_STARS} stars",
        )
    return Pattern(text)
