"""Ids that a client makes for single messages: each larger than the one before, and none says what the next is."""

from __future__ import annotations

import itertools
import uuid

from tampu.client.request import new_ids


def test_who_knows_an_id_cannot_guess_the_next() -> None:
    made = [uuid.UUID(id) for id in (*new_ids(1000), *new_ids(1), *new_ids(1))]
    assert {id.version for id in made} == {7}
    assert made == sorted(set(made))
    between = [later.int - earlier.int for earlier, later in itertools.pairwise(made)]
    assert len(set(between)) == len(between)
    assert sum(distance < 1 << 40 for distance in between) < 3, "there are 56 random bits between two"
