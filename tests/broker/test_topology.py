"""Topology files: what is exported is what was applied, and no file whatever makes anything but a named error."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import jsonschema_rs
import pytest
import yaml  # type: ignore[import-untyped]  # it has no types
from hypothesis import given, settings
from hypothesis import strategies as st

import tampu
from tampu.broker import access
from tampu.broker.topology import text
from tampu.broker.topology.verbs import topology_schema
from tampu.server.auth.grants import parse
from tampu.server.auth.key_admin import KeyAdmin

names = st.from_regex(r"[a-z][a-z0-9_.:\-]{0,8}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
pairs = st.dictionaries(texts, texts, max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
queues = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 1000),
        "lease": st.integers(1, 9999) | st.sampled_from(["30s", "1h30m"]),
        "rate": st.sampled_from([0, 2.5, "100/s", "10/m"]),
        "ordering": st.sampled_from(["fifo", "priority", "deadline", "fair"]),
        "group_order": st.booleans(),
        "backoff": st.sampled_from(["linear", 5, [1, 2, 3], {"kind": "fixed", "base": 3}]),
        "status": st.sampled_from(["open", "paused"]),
    },
)
actions = st.sampled_from([
    {"copy": "elsewhere"}, {"set": {"labels": {"a": "b"}, "delay": "5m"}}, {"archive": True},
    {"publish": {"queue": "replies", "payload": {"n": [1, None]}}},
])  # fmt: skip
rules = st.fixed_dictionaries(
    {"actions": st.lists(actions, min_size=1, max_size=3)},
    optional={"when": st.sampled_from(["true", "message.priority > 3"]), "continue": st.booleans(),
              "order": st.integers(-5, 5), "queues": st.lists(names, max_size=2)},
)  # fmt: skip
schedules = st.fixed_dictionaries(
    {"queue": names, "every": st.integers(1, 10**6) | st.just("2h")},
    optional={"payload": values, "labels": pairs, "headers": pairs, "limit": st.integers(1, 9),
              "priority": st.integers(0, 9),
              "missed": st.sampled_from(["skip", "once", "all(3)"]), "start": st.just("2030-01-01T00:00:00Z"),
              "jitter": st.sampled_from([3, "5s"]), "delay": st.just(1.5), "hold": st.just("why"), "key": names,
              "paused": st.booleans(), "max_attempts": st.integers(1, 9), "type": st.just("a.b")},
)  # fmt: skip
topologies = st.fixed_dictionaries(
    {},
    optional={
        "queues": st.dictionaries(names | st.sampled_from(["*", "shop.*"]), queues, max_size=4),
        "rules": st.dictionaries(names, rules, max_size=3),
        "schemas": st.dictionaries(names, st.just({"schema": {"type": "object"}}), max_size=2),
        "subscriptions": st.dictionaries(
            st.builds("{}@{}".format, names, names), st.just({"labels": {"team": "a"}}), max_size=2
        ),
        "schedules": st.dictionaries(names, schedules, max_size=3),
    },
)


@settings(max_examples=max(10, settings().max_examples // 5))
@given(topologies, topologies)
def test_apply_export_apply_changes_nothing(first: dict[str, Any], second: dict[str, Any]) -> None:
    schema = jsonschema_rs.validator_for(topology_schema())
    with tampu.open("memory://", maintenance=False) as store, tampu.open("memory://", maintenance=False) as copy:
        for topology in (first, second):
            schema.validate(topology)
            store.topology.apply(yaml.safe_dump(topology, allow_unicode=True), prune=True)
            assert store.topology.apply(topology, prune=True).changes == []
            exported = store.topology.export()
            schema.validate(exported)
            assert store.topology.apply(yaml.safe_dump(exported), prune=True).changes == []
            everything = {name: exported.get(name, {}) for name in schema_sections()}
            copy.topology.apply(everything, prune=True)
            assert copy.topology.export() == exported


def schema_sections() -> list[str]:
    return [name for name in topology_schema()["properties"] if name != "keys"]


@pytest.fixture(scope="module")
def rehearsal() -> Any:
    with tampu.open("memory://", maintenance=False) as store:
        yield store


broken = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200),
    st.text("-:{}[]&*!|>'\"#,? \nab<", max_size=60),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts | st.dates(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*topology_schema()["properties"], "a", "when", "queue"]) | texts, inner)
        ),
        max_leaves=20,
    ).map(lambda value: yaml.safe_dump(value, allow_unicode=True)),
)


@given(file=broken)
def test_a_file_that_is_wrong_is_refused_with_an_error_of_ours(rehearsal: tampu.Store, file: Any) -> None:
    with contextlib.suppress(tampu.TampuError):
        rehearsal.topology.apply(file, dry_run=True)


def test_files_that_would_take_long_are_refused_at_once(rehearsal: tampu.Store) -> None:
    aliases = "\n".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    chains = "\n".join(f"a{n}: &a{n} {'[' * 40}*a{n - 1}{']' * 40}" for n in range(1, 60))
    cases = {
        "aliases": "a0: &a0 x\n" + aliases,
        "chained aliases": "a0: &a0 x\n" + chains,
        "itself": "queues: &q {a: *q}",
        "depth": "queues: " + "[" * 100_000,
        "depth in blocks": "\n".join(" " * n + "a:" for n in range(1000)),
        "size": "#" * (text.MOST_BYTES + 1),
        "values": "queues: [" + "1," * 200_000 + "]",
        "python": "queues: !!python/object/apply:os.system [ls]",
        "a tag": "queues: {a: !!binary aGk=}",
        "twice": "queues: {a: {}, a: {}}",
        "documents": "queues: {}\n---\nqueues: {}\n",
        "a list as a key": "? [a]\n: b\n",
        "nothing": "",
        "a text": "queues",
        "a number too large": "queues: {a: {lease: 1e999}}",
    }
    for name, file in cases.items():
        start = time.monotonic()
        with pytest.raises(tampu.InvalidConfig):
            rehearsal.topology.apply(file)
        assert time.monotonic() - start < 30, name


def test_words_and_dates_are_texts_as_in_yaml_1_2() -> None:
    parsed = text.parse("{no: no, on: yes, d: 2030-01-01, n: 010, f: 1.5, e: 1e3, t: true, z: , q: '1'}", "f")
    assert parsed.data == {
        "no": "no", "on": "yes", "d": "2030-01-01", "n": 10, "f": 1.5, "e": 1000.0, "t": True, "z": None, "q": "1",
    }  # fmt: skip


def test_grants_of_keys_are_applied_and_exported_without_secrets() -> None:
    with tampu.open("memory://") as store:
        core = access.core(store)
        keys = KeyAdmin(core, "default")
        for name, tenant in (("ci", None), ("twin", None), ("twin", None), ("ci", "other"), ("root", "*")):
            core.drive(keys.create(name, [parse("view")], tenant=tenant))
        exported = store.topology.export()
        assert len(exported["keys"]) == 3, "the twins by their ids"
        assert "hash" not in str(exported)
        assert store.topology.apply(exported, prune=True).changes == []
        grants = [{"permissions": ["publish"], "queues": ["orders.*"]}]
        (change,) = store.topology.apply({"keys": {"ci": {"grants": grants}}}, prune=True).changes
        assert (change.name, change.action) == ("ci", "change")
        views = {(key.tenant, key.name): key.grants for key in core.drive(KeyAdmin(core, "*").list())}
        assert views["default", "ci"] == (parse("publish:orders.*"),)
        assert views["other", "ci"] == (parse("view"),)
        for name in ("twin", "root", "new"):
            with pytest.raises(tampu.InvalidConfig, match="no single key"):
                store.topology.apply({"keys": {name: {"grants": grants}}})


def test_a_change_meanwhile_refuses_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with tampu.open("memory://") as store:
        kind = type(access.engine(store))
        read = kind.documents

        def change_after(self: Any, *args: Any, **more: Any) -> Any:
            found = read(self, *args, **more)
            if args[2:] == ("rule:",):
                monkeypatch.undo()
                store.rules.put("b", actions=[{"copy": "meanwhile"}])
            return found

        for file, prune in (("rules: {a: {actions: [{copy: y}]}, b: {actions: [{copy: y}]}}", False), ("rules:", True)):
            store.topology.apply("rules: {a: {actions: [{copy: x}]}, b: {actions: [{copy: x}]}}")
            monkeypatch.setattr(kind, "documents", change_after)
            with pytest.raises(tampu.VersionConflict, match="nothing was applied"):
                store.topology.apply(file, prune=prune)
            assert [rule.actions[0].copy for rule in store.rules.list()] == ["x", "meanwhile"]
