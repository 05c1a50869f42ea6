"""Objectives as users write them."""

import pytest

from tampu.lake.objectives import DEFAULTS, Objective, effective, parse
from tampu.model.errors import InvalidConfig


def test_one_objective_and_a_list_are_read() -> None:
    one = '{"queue": "emails", "objective": "latency", "target": 0.99, "within": 30}'
    assert parse(one) == [Objective(queue="emails", objective="latency", target=0.99, within=30.0)]
    assert parse(f'[{one}, {{"objective": "success", "target": 1}}]')[1].queue == "*"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"objective": "latency", "target": 0.9, "within": 3, "windw": 1}', "windw"),
        ('{"objective": "speed", "target": 0.9}', "speed"),
        ('{"objective": "success", "target": 1.5}', "target"),
        ('{"objective": "success", "target": 0}', "target"),
        ('{"objective": "latency", "target": 0.9}', "within"),
        ('{"objective": "success", "target": 0.9, "within": 3}', "within"),
        ('{"objective": "latency", "target": 0.9, "within": 0}', "within"),
        ('{"objective": "success", "target": 0.9, "queue": ""}', "queue"),
        ("{", "truncated"),
        (b"\xff", "objective"),
        ('[{"objective": "success", "target": 0.9}, {"objective": "success", "target": 0.8}]', "two objectives"),
    ],
)
def test_what_is_no_objective_is_refused_with_the_reason(text: str | bytes, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        parse(text)


def test_defaults_stand_until_an_objective_for_all_queues_replaces_them() -> None:
    own = Objective(queue="emails", objective="success", target=0.5)
    general = Objective(objective="success", target=0.9)
    assert effective([]) == list(DEFAULTS)
    assert effective([own]) == [own, *DEFAULTS]
    assert effective([own, general]) == [own, general, DEFAULTS[1]]
