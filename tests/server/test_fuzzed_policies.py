"""Random expressions, schemas, rules and subscriptions over HTTP: refused or used, never an error of the server."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.web import Web

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc") | TEXTS, inner, max_size=3),
    max_leaves=8,
)
ATOMS = st.sampled_from(
    ["message", "message.payload", "message.payload.a", "message.type", "message.labels.x", "message.nothing", "1",
     "1u", "-0.5", "9223372036854775807", "'a'", "b'\\xff'", "true", "null", "[1, 'a']", "{'a': 1}", "x",
     "__import__('os')", "timestamp('2026-01-01T00:00:00Z')", "duration('1h')", "'${HOME}'",
     "'; DROP TABLE tampu_message; --'"]
)  # fmt: skip


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.sampled_from(["&&", "||", "==", "!=", "<", ">=", "+", "-", "*", "/", "%", "in"])
    around = ["!({})", "-({})", "({})", "size({})", "string({})", "int({})", "has({})", "[{}]", "({}).all(x, x == 1)",
              "({}).map(x, x)", "({}).exists(x, true)", "({}).matches('(a+)+$')", "({}).startsWith('a')", "({})[0]",
              "({}).a", "{} ? 1 : 2", "{"]  # fmt: skip
    return st.builds(lambda a, how, b: f"{a} {how} {b}", inner, two, inner) | st.builds(
        lambda how, a: how.replace("{}", a), st.sampled_from(around), inner
    )


EXPRESSIONS = st.recursive(ATOMS, _joined, max_leaves=6) | TEXTS
QUEUES = st.sampled_from(["jobs", "other", "jobs@x", "a b", "*", "", "_tampu.x", "jo*"]) | TEXTS
ACTIONS = (
    st.fixed_dictionaries({"route": QUEUES}) | st.fixed_dictionaries({"copy": QUEUES})
    | st.fixed_dictionaries({"transform": EXPRESSIONS}) | st.fixed_dictionaries({"set": st.fixed_dictionaries(
        {}, optional={"labels": st.dictionaries(TEXTS, TEXTS, max_size=2), "priority": st.integers(), "delay": JSON,
                      "deadline": st.sampled_from(["4h", "-1s", "x", 1e300])})})
    | st.fixed_dictionaries({"publish": st.fixed_dictionaries({"queue": QUEUES}, optional={"expression": EXPRESSIONS,
                                                                                          "payload": JSON})})
    | st.sampled_from([{"archive": True}, {"archive": False}, {}, {"escalate": {"priority": 10**30}}])
)  # fmt: skip
RULES = st.fixed_dictionaries(
    {"actions": st.lists(ACTIONS, max_size=3)},
    optional={
        "when": EXPRESSIONS, "queues": st.lists(QUEUES, max_size=2), "types": JSON, "order": st.integers(),
        "continue": st.booleans(), "trigger": st.sampled_from(["published", "completed", "no"]),
    },
)  # fmt: skip
KEYWORDS = st.sampled_from(
    ["type", "required", "properties", "items", "anyOf", "not", "enum", "const", "pattern", "maxLength", "$ref",
     "$defs", "minimum", "format", "additionalProperties", "if", "dependentRequired", "uniqueItems",
     "$dynamicRef", "$id"]
)  # fmt: skip
WORDS = st.sampled_from(["object", "integer", "(a+)+$", "#", "#/$defs/a", "file:///etc/passwd", "http://localhost:1/"])
SCHEMAS = st.recursive(
    st.dictionaries(KEYWORDS, JSON | WORDS),
    lambda inner: st.dictionaries(
        KEYWORDS, inner | st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2)
    ),
    max_leaves=5,
)
PUBLISHED = st.lists(JSON, min_size=1, max_size=3)
FUZZED = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def _used(web: Web, path: str, body: Any, payloads: list[Any], queue: str = "jobs") -> None:
    """Put a definition, publish, and remove it again: nothing of it is an error of the server."""
    put = web.request("PUT", path, body)
    assert put.status < 500, (body, put.json)
    answer = web.post(f"/v1/queues/{queue}/publish", {"messages": [{"payload": payload} for payload in payloads]})
    assert answer.status < 500, (body, payloads, answer.json)
    if answer.status == 200:
        assert len(answer.json["messages"]) == len(payloads)
    assert web.get(path).status in (200, 400, 404)
    assert web.request("DELETE", path).status in (200, 400)


@FUZZED
@given(rule=RULES, payloads=PUBLISHED)
def test_rules(web: Web, rule: Any, payloads: list[Any]) -> None:
    _used(web, "/v1/rules/fuzzed", rule, payloads)


@FUZZED
@given(schema=SCHEMAS, payloads=PUBLISHED)
def test_schemas(web: Web, schema: Any, payloads: list[Any]) -> None:
    _used(web, "/v1/schemas/fuzzed", {"schema": schema, "queues": ["jobs"]}, payloads)


@FUZZED
@given(filter=EXPRESSIONS, payloads=PUBLISHED, start=st.none() | TEXTS)
def test_subscriptions(web: Web, filter: str, payloads: list[Any], start: str | None) -> None:
    web.request("PATCH", "/v1/queues/news/config", {"consumer_mode": "broadcast"})
    body = {"queue": "news", "subscriber": "fuzzed", "filter": filter} | ({} if start is None else {"start": start})
    _used(web, "/v1/subscriptions/news@fuzzed", body, payloads, "news")


def test_a_batch_of_invalid_messages_names_the_first_and_stores_nothing(web: Web) -> None:
    assert web.request("PUT", "/v1/schemas/whole", {"schema": {"type": "integer"}, "queues": ["jobs"]}).status == 200
    for at in (0, 3, 99):
        messages = [{"payload": "x" if place >= at else place} for place in range(100)]
        answer = web.post("/v1/queues/jobs/publish", {"messages": messages})
        assert (answer.status, answer.json["field"]) == (400, f"messages[{at}].payload")
    web.request("PATCH", "/v1/queues/jobs/config", {"on_invalid": "dead"})
    answer = web.post("/v1/queues/jobs/publish", {"messages": [{"payload": "x"}, {"payload": 1}, {"payload": None}]})
    assert [message["state"] for message in answer.json["messages"]] == ["dead", "ready", "dead"]
