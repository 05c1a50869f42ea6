"""The OpenAPI is true: whatever it allows is asked, and every answer is one it announces, never a 500.

TAMPU_OPENAPI_EXAMPLES=600 looks longer; `make fuzz` does, at other things each time.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tampu.server.app import framework
from tests.seeds import OTHER_THREADS_DRAW
from tests.servers.http import Stall

pytestmark = OTHER_THREADS_DRAW  # a whole server runs in threads of this process
EXAMPLES = int(os.environ.get("TAMPU_OPENAPI_EXAMPLES", "6"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stall]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    made = Stall(url="memory://", key_file=folder / "admin.key", max_wait=0.05)
    yield made
    made.stop()


@schemathesis.serializer("application/msgpack")
def packed(_context: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):  # a number or text that MessagePack cannot hold
        return b""


@schemathesis.deserializer("application/msgpack")
def unpacked(_context: Any, response: Any) -> Any:
    """As JSON would say it: the schema speaks of text where MessagePack has times and bytes of its own."""
    return msgspec.to_builtins(msgspec.msgpack.decode(response.content))


DOCUMENT = framework().openapi()
OPERATIONS = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]


@functools.cache
def schema() -> Any:
    return schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_is_announced(operation: str, stall: Stall, seed: int) -> None:
    """What to ask is made up here, not by `schema.parametrize`: every test process would do it for all operations."""

    def ask(case: schemathesis.Case) -> None:
        if case.operation.definition.raw.get("operationId") == "events":
            case.query = {**(case.query or {}), "seconds": 0}  # what there is: else it does not end by itself
        if case.operation.definition.raw.get("operationId") == "revoke_key":
            return  # it would saw off the branch it sits on, only by guessing an id; the matrix asks it
        headers = {"authorization": f"Bearer {stall.token}"}
        case.call_and_validate(base_url=stall.url, headers=headers, checks=CHECKS, timeout=60)

    one = schema().include(name=operation)
    one.config.seed = seed
    limits = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    (made,) = get_all_tests(schema=one, test_func=ask, settings=limits, given_kwargs=None)
    assert isinstance(made, Ok), made
    _, questions = made.ok()
    questions()
