"""Patterns of queues: matched as a regular expression would, in a time that does not explode."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tampu.model.patterns import Pattern
from tests.server.web import Web


@given(st.text("ab*", max_size=12), st.text("ab", max_size=16))
def test_a_star_is_any_characters(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
    assert Pattern(pattern).matches(name) == expected


def test_many_stars_take_no_longer_than_one() -> None:
    """A regular expression of these would not come to an end in years."""
    assert not Pattern("*a" * 40 + "*b").matches("a" * 128)
    assert Pattern("*a" * 40 + "*").matches("a" * 128)


def test_a_filter_of_events_that_nobody_needs_is_refused(web: Web) -> None:
    for field in ("queue", "type"):
        for pattern in ("*a" * 20 + "*b", "a" * 1000 + "*"):
            refused = web.get(f"/v1/events?{field}={pattern}&seconds=0")
            assert (refused.code, refused.json["field"]) == ("invalid_message", field)
        assert web.get(f"/v1/events?{field}=*a*b*c*&seconds=0").status == 200
