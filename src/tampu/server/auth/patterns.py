"""Patterns of names, in which ``*`` stands for any characters.

No regular expressions: several stars in one take a time that grows with the power of their number, on the loop.
"""

from __future__ import annotations

from tampu.model.errors import InvalidMessage

_LONGEST = 200
_MOST_STARS = 8


class Pattern:
    """Matches names as a whole, in one walk through them."""

    __slots__ = ("_first", "_last", "_middle", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        parts = text.split("*")
        self._first = parts[0]
        self._middle = parts[1:-1]
        self._last = parts[-1] if len(parts) > 1 else None
        """None: there is no star."""

    def matches(self, name: str) -> bool:
        first, last = self._first, self._last
        if last is None:
            return name == first
        at, end = len(first), len(name) - len(last)
        if at > end or not name.startswith(first) or not name.endswith(last):
            return False
        for part in self._middle:  # the first place is the best: it leaves the most to those that follow
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


def asked(text: str, field: str) -> Pattern:
    """A pattern that a request gives."""
    if len(text) > _LONGEST or text.count("*") > _MOST_STARS:
        raise InvalidMessage(
            f"{text!r:.60} is not a pattern that can be asked for",
            field=field,
            hint=f"at most {_LONGEST} characters, and {_MOST_STARS} stars",
        )
    return Pattern(text)
