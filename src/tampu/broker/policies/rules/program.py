"""The rules of a queue for one type of messages, compiled: which of them may match is found without trying each.

Successive rules that compare one field for equality, each with another value, are one look-up in a table. Other
conditions are functions of Python (`conditions`); all else is decided by CEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tampu.broker.plain_batch import PlainBatch
from tampu.broker.policies import cel, conditions
from tampu.broker.policies.conditions import Comparison, View
from tampu.broker.settings import Settings
from tampu.model.definitions import Rule, matches

Candidates = Sequence[tuple[Rule, bool]]
"""Rules that may match, in order, and whether they surely do; else CEL must be asked."""
Find = Callable[[View], Candidates]
FindAll = Callable[[PlainBatch], Sequence[Rule | None] | None]
"""For each message of a plain batch the rule that matches; None if CEL must be asked."""


class Program:
    def __init__(self, rules: Sequence[Rule]) -> None:
        self.fields = cel.fields_used(tuple(source for rule in rules for source in _sources(rule)))
        """The fields of ``message`` that the rules use; None: perhaps all."""
        self.entries: list[tuple[Find, FindAll]] = []
        """Each for one or several rules, in order."""
        table: dict[Any, Rule] = {}
        same: tuple[Any, ...] = ()
        """The field of the table, and the type of its values."""
        for rule in rules:
            one = _equality(rule)
            key = () if one is None else (one.path, type(one.literal))
            if table and (key != same or (one is not None and one.literal in table)):
                self.entries.append(_table(same, table))
                table = {}
            if one is None:
                self.entries.append(_single(rule))
            else:
                same, table[one.literal] = key, rule
        if table:
            self.entries.append(_table(same, table))

    def first_matches(self, batch: PlainBatch) -> Sequence[Rule | None] | None:
        """For each message of a plain batch the first rule that matches; None if CEL must be asked."""
        first: Sequence[Rule | None] | None = None
        for _, find_all in self.entries:
            found = find_all(batch)
            if found is None:
                return None
            first = found if first is None else [a or b for a, b in zip(first, found, strict=True)]
        return first or [None] * len(batch.raws)


def program(settings: Settings, type: str) -> Program:
    """The rules of these settings that are for messages of a type."""
    found: Program | None = settings.kept.get((Program, type))
    if found is None:
        found = Program([rule for rule in settings.rules if matches(rule.types, type)])
        settings.kept[Program, type] = found
    return found


def _sources(rule: Rule) -> Iterator[str]:
    """All expressions of a rule."""
    yield rule.when
    for action in rule.actions:
        if action.expression is not None:
            yield action.expression


def _equality(rule: Rule) -> Comparison | None:
    """The comparison of a rule that can be in a table. Nothing that such a rule does changes what the next one in the
    table compares: it has one action, after which no other rule is tried, and an action that fails adds a header."""
    found = conditions.parse(rule.when)
    if found is None or len(found) != 1 or rule.go_on or len(rule.actions) > 1:
        return None
    (one,) = found
    return one if one.how == "==" and one.path[0] != "headers" else None


def _table(same: tuple[Any, ...], table: dict[Any, Rule]) -> tuple[Find, FindAll]:
    path, _ = same
    (some, *_) = table
    sure = {literal: ((rule, True),) for literal, rule in table.items()}
    unsure = tuple((rule, False) for rule in table.values())
    read = conditions.reader(path)

    def find(view: View) -> Candidates:
        value = read(view)
        return sure.get(value, ()) if conditions.comparable(value, some) else unsure

    def find_all(batch: PlainBatch) -> Sequence[Rule | None] | None:
        values = conditions.column(path, some, batch)
        return None if values is None else list(map(table.get, values))

    return find, find_all


def _single(rule: Rule) -> tuple[Find, FindAll]:
    comparisons = conditions.parse(rule.when)
    condition = conditions.condition_of(cel.compiled(rule.when))
    sure, unsure = ((rule, True),), ((rule, False),)
    if condition is None or comparisons is None:
        return (lambda _view: unsure), (lambda _batch: None)

    def find(view: View) -> Candidates:
        found = condition(view)
        return unsure if found is None else sure if found else ()

    def find_all(batch: PlainBatch) -> Sequence[Rule | None] | None:
        found = conditions.column_test(comparisons, batch)
        return None if found is None else [rule if matches else None for matches in found]

    return find, find_all
