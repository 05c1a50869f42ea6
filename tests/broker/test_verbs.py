"""Verbs are mixins of one class: no two of them may define the same name, or one would silently replace the other's."""

from __future__ import annotations

import itertools

import pytest

from tampu.broker.store import AllVerbs
from tampu.client.verbs import RemoteVerbs

_OF_PYTHON = frozenset(vars(type("Empty", (), {})))


def _own(mixin: type) -> set[str]:
    return {name for name in vars(mixin) if name not in _OF_PYTHON and not name.startswith("__")}


@pytest.mark.parametrize("whole", [AllVerbs, RemoteVerbs])
def test_no_two_mixins_define_the_same_name(whole: type) -> None:
    classes = [one for one in whole.__mro__ if one is not object]
    twice = {
        (first.__name__, second.__name__): names
        for first, second in itertools.combinations(classes, 2)
        if (names := _own(first) & _own(second)) and not (issubclass(first, second) or issubclass(second, first))
    }
    assert twice == {}
