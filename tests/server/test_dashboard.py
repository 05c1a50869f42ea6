"""The Grafana dashboard asks only for what a live server tells, in queries that Prometheus understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

import tampu
from tampu.model.reasons import DEAD_LETTER_REASONS
from tests.conformance.harness import until
from tests.server.web import Web
from tests.servers.http import Stall

ROOT = Path(__file__).resolve().parents[2]
BOARD: dict[str, Any] = msgspec.json.decode((ROOT / "deploy/grafana/tampu.json").read_bytes())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
VARIABLES = {"$__rate_interval": "5m", "$tenant": ".*", "$queue": ".*"}
ADDED = {"instance", "job"}
"""Labels that Prometheus adds."""


def _filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, f"a variable that the dashboard has not: {query}"
    return query


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None:
            yield from _nodes(inner)
    for argument in getattr(expression, "args", None) or ():
        yield from _nodes(argument)


def _asked(query: str) -> tuple[dict[str, set[str]], set[str]]:
    """(labels by which each metric is chosen, labels by which results are grouped)"""
    metrics: dict[str, set[str]] = {}
    groups: set[str] = set()
    for node in _nodes(promql_parser.parse(_filled(query))):
        if isinstance(node, promql_parser.VectorSelector):
            metrics.setdefault(str(node.name), set()).update(m.name for m in node.matchers.matchers)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            groups.update(node.modifier.labels)
    return metrics, groups


@pytest.fixture
def labels_of(web: Web, stall: Stall) -> dict[str, set[str]]:
    """The labels of each metric of a server that has done some of everything."""
    with tampu.open(stall.url, token=stall.token) as store:
        store.publish_many("jobs", range(4))
        done, again, dead, lost = store.claim("jobs", limit=4)
        store.ack(done)
        store.nack(again, "boom")
        store.reject(dead)
        store.release(lost)
        with pytest.raises(tampu.LeaseLost):
            store.nack(lost)
    assert web.as_key(None).get("/v1/queues").status == 401
    until(lambda: web.get("/ready").status == 200)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(web.get("/metrics").raw.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_asks_for_metrics_and_labels_that_a_server_has(labels_of: dict[str, set[str]]) -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            metrics, groups = _asked(target["expr"])
            assert metrics, target["expr"]
            for name, labels in metrics.items():
                assert name in labels_of, f"{panel['title']}: no server tells {name}"
                assert labels <= labels_of[name], f"{panel['title']}: {name} has only {labels_of[name]}"
            known = ADDED.union(*(labels_of[name] for name in metrics))
            assert groups <= known, f"{panel['title']}: {groups - known}"
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known


def test_metrics_of_the_whole_store_are_not_summed_over_nodes() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for name in ("tampu_messages", "tampu_oldest_ready_seconds", "tampu_maintenance_lag_seconds"):
                if name in target["expr"]:
                    assert re.search(rf"max(?: by \([^)]*\))? ?\({name}", target["expr"]), target["expr"]


def test_everything_that_a_server_tells_is_on_the_dashboard(labels_of: dict[str, set[str]]) -> None:
    shown = {name for panel in PANELS for target in panel["targets"] for name in _asked(target["expr"])[0]}
    whole = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    ours = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in labels_of}
    assert ours - whole == {"tampu_refused"}, "only when a counter was made, which nobody asks"


def test_the_dashboard_fits_together() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} covers another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in PANELS)
    names = [variable["name"] for variable in BOARD["templating"]["list"]]
    assert names == ["datasource", "tenant", "queue"]


def test_variables_offer_what_a_server_tells(labels_of: dict[str, set[str]]) -> None:
    for variable in BOARD["templating"]["list"][1:]:
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert asked is not None
        (metric,) = _asked(asked[1])[0]
        assert asked[2] in labels_of[metric]


def test_the_reference_tells_of_every_metric(labels_of: dict[str, set[str]]) -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    for name in {re.sub(r"_(bucket|count|sum)$", "", name) for name in labels_of} - {"tampu_refused_created"}:
        assert f"`{name}`" in text, name


def test_the_reference_tells_of_every_reason() -> None:
    text = (ROOT / "docs/reference/states.md").read_text()
    assert all(f"`{reason}`" in text for reason in DEAD_LETTER_REASONS)
