"""Whatever a task raises, reads or returns, its message is settled, and the worker goes on with the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tampu
from tests.worker.crew import PATIENCE


class Halt(BaseException):
    """Not an `Exception`."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Positive(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        assert self.n > 0


class Odd:
    def model_dump(self, mode: str) -> Any:
        raise KeyError(mode)


def _raise(error: BaseException) -> None:
    raise error


def _plain(body: Callable[[], Any]) -> Callable[[], Any]:
    return body


def _async(body: Callable[[], Any]) -> Callable[[], Any]:
    async def call() -> Any:
        return body()

    return call


def _async_later(body: Callable[[], Any]) -> Callable[[], Any]:
    async def call() -> Any:
        await asyncio.sleep(0.001)
        return body()

    return call


def _ended(app: tampu.App, function: Callable[..., Any], payload: Any = None) -> tampu.Message:
    """The message after a worker had it, and another one after it."""
    app.task(name="odd")(function)

    @app.task(queue="default")
    async def next_one() -> int:
        await asyncio.sleep(0)
        return 5

    with tampu.working(app, concurrency=1):
        published = app.store.publish("default", payload or {}, type="odd", max_attempts=1)
        later = next_one.publish()
        found = app.store.result(published.id, wait=PATIENCE)
        assert later.result(PATIENCE) == 5
    return found


@pytest.mark.parametrize("kind", [_plain, _async, _async_later])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Halt("enough"), "Halt: enough"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Mute(), "Mute: its text cannot be read, RuntimeError"),
        (tampu.Reject(reason=None), "TypeError"),  # type: ignore[arg-type]  # as untyped programs do
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_raised_is_a_failed_attempt(
    memory: tampu.App, kind: Any, error: BaseException, expected: str
) -> None:
    found = _ended(memory, kind(lambda: _raise(error)))
    assert found.state == "dead"
    assert expected in (found.last_error or "") or found.reason == "unrecoverable"


@pytest.mark.parametrize("kind", [_plain, _async, _async_later])
def test_result_whose_encoding_fails_in_its_own_code_is_dead_and_says_so(memory: tampu.App, kind: Any) -> None:
    found = _ended(memory, kind(Odd))
    assert (found.state, found.reason) == ("dead", "result_invalid")
    assert found.last_error == "the result cannot be stored: KeyError: 'json'"


@pytest.mark.parametrize("is_async", [False, True])
def test_argument_that_its_own_type_refuses_does_not_fit(memory: tampu.App, is_async: bool) -> None:
    def work(a: Positive) -> None: ...

    async def work_async(a: Positive) -> None: ...

    found = _ended(memory, work_async if is_async else work, {"a": {"n": -1}})
    assert (found.state, found.reason) == ("dead", "decode_failed")
    assert "AssertionError" in (found.last_error or "")


@pytest.mark.parametrize("is_async", [False, True])
def test_task_with_an_annotation_that_nobody_knows_fails_and_says_so(memory: tampu.App, is_async: bool) -> None:
    def work(a: Any) -> None: ...

    async def work_async(a: Any) -> None: ...

    function: Any = work_async if is_async else work
    function.__annotations__["a"] = "NotDefinedAnywhere"
    found = _ended(memory, function, {"a": 1})
    assert found.reason == "retries_exhausted"
    assert "cannot be read" in (found.last_error or "")


@pytest.mark.parametrize("is_async", [False, True])
def test_wrong_arguments_for_another_task_are_an_error_of_this_one(memory: tampu.App, is_async: bool) -> None:
    @memory.task(queue="other")
    def other(n: int) -> None: ...

    def work() -> None:
        other.publish("x")  # type: ignore[arg-type]  # the point

    found = _ended(memory, _async(work) if is_async else work)
    assert found.reason == "retries_exhausted"


def test_coroutine_that_cancels_itself_fails_and_harms_no_other(memory: tampu.App) -> None:
    async def leave(wait: bool) -> None:
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        if wait:
            await asyncio.sleep(3600)

    found = _ended(memory, leave, {"wait": True})
    assert (found.state, found.last_error) == ("dead", "CancelledError: ")


def test_coroutine_that_cancels_itself_and_returns_harms_no_other(memory: tampu.App) -> None:
    async def leave() -> int:
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        return 3

    assert _ended(memory, leave).result == 3


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tampu.Retry(after=-1), "InvalidMessage: after must be"),
        (lambda: tampu.Snooze("soon"), "InvalidMessage: after 'soon' is not a duration"),
        (lambda: tampu.Retry(5), "InvalidMessage: error must be a text"),  # type: ignore[arg-type]  # as above
    ],
)
def test_wish_for_another_attempt_that_makes_no_sense_is_a_failed_attempt_that_says_so(
    memory: tampu.App, make: Callable[[], BaseException], expected: str
) -> None:
    found = _ended(memory, lambda: _raise(make()))
    assert found.reason == "retries_exhausted"
    assert expected in (found.last_error or "")
