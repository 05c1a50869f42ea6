"""Which errors are retried: `retry_on` and `dead_on`; and results that are not what the function says."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tampu
from tampu.model.reasons import RESULT_INVALID, UNRECOVERABLE
from tampu.testing import Rehearsal
from tests.worker.shop import refuse_by_policy


def _end(app: tampu.App, function: Callable[[], Any], **options: Any) -> tampu.Message:
    """The message after one attempt of a task with these options."""
    with Rehearsal(app) as rehearsal:
        task = app.task(name=f"t{len(app.tasks)}", **options)(function)
        published: tampu.Published[Any] = task.publish()
        rehearsal.drain()
        return published.refresh()


def _raise(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def test_errors_are_retried_or_not_by_their_class(memory: tampu.App) -> None:
    retried: list[tuple[BaseException, dict[str, Any]]] = [
        (ValueError("x"), {}),
        (ConnectionResetError("x"), {"retry_on": OSError}),
        (ValueError("x"), {"retry_on": (OSError, ValueError)}),
        (ValueError("x"), {"dead_on": [KeyError, TypeError]}),
        (tampu.Retry("x"), {"retry_on": OSError, "dead_on": Exception}),
    ]
    for error, options in retried:
        message = _end(memory, _raise(error), **options)
        assert (message.state, message.attempts) == (tampu.State.DELAYED, 1), options
    dead: list[tuple[BaseException, dict[str, Any]]] = [
        (ValueError("no such user"), {"retry_on": OSError}),
        (ValueError("no such user"), {"dead_on": ValueError}),
        (ValueError("no such user"), {"retry_on": Exception, "dead_on": (ValueError,)}),
        (SystemExit("no such user"), {"retry_on": Exception}),
    ]
    for error, options in dead:
        message = _end(memory, _raise(error), **options)
        assert (message.state, message.reason, message.attempts) == (tampu.State.DEAD, UNRECOVERABLE, 1), options
        assert str(message.last_error).endswith("Error: no such user") or "SystemExit" in str(message.last_error)
        assert "in function" in str(message.failures[0].traceback)


def test_a_function_decides_by_error_and_attempt(memory: tampu.App) -> None:
    asked: list[tuple[str, int]] = []

    def decide(error: BaseException, attempt: int) -> Any:
        asked.append((str(error), attempt))
        return {1: "5m", 2: True, 3: False}[attempt]

    with Rehearsal(memory) as rehearsal:
        task = memory.task(backoff=[7], retry_on=decide)(_raise(ValueError("busy")))
        published: tampu.Published[None] = task.publish()
        for seconds in (300, 7):
            rehearsal.drain()
            message = published.refresh()
            assert message.run_us == rehearsal.clock.now() + seconds * 1_000_000
            rehearsal.advance(seconds)
        rehearsal.drain()
        assert published.state() is tampu.State.DEAD
    assert asked == [("busy", 1), ("busy", 2), ("busy", 3)]


def test_a_deciding_function_that_fails_or_answers_nonsense_costs_an_attempt_and_says_so(memory: tampu.App) -> None:
    for answer, text in ((lambda *_: 1 / 0, "ZeroDivisionError"), (lambda *_: "soon", "'soon' is not a duration")):
        message = _end(memory, _raise(ValueError("busy")), retry_on=answer)
        assert message.state is tampu.State.DELAYED
        assert str(message.last_error).startswith("ValueError: busy (and retry_on failed: ")
        assert text in str(message.last_error)


def test_a_child_process_follows_the_policy_of_the_task(shop_app: tampu.App) -> None:
    with tampu.working(shop_app, children=1), pytest.raises(tampu.TaskFailed):
        refuse_by_policy.publish().result(120)


def test_a_timeout_is_always_retried(memory: tampu.App) -> None:
    task = memory.task(timeout="1m", dead_on=BaseException, retry_on=OSError)(_raise(ValueError("not reached")))
    with Rehearsal(memory) as rehearsal:
        rehearsal.slow(task, "1h")
        published = task.publish()
        rehearsal.drain()
        message = published.refresh()
    assert (message.state, message.last_error) == (tampu.State.DELAYED, "TimedOut: function ran for longer than 60 s")


def test_options_that_are_no_errors_are_refused(memory: tampu.App) -> None:
    for options in ({"retry_on": "OSError"}, {"retry_on": [1]}, {"dead_on": int}, {"dead_on": lambda *_: True}):
        with pytest.raises(tampu.InvalidConfig, match="cannot be") as refused:
            memory.task(**options)(lambda: None)
        assert refused.value.field == next(iter(options))


class Receipt(msgspec.Struct):
    to: str


def test_result_that_does_not_match_the_annotation_fails_the_attempt_with_a_clear_error(memory: tampu.App) -> None:
    def number() -> int:
        return "5"  # type: ignore[return-value]  # on purpose

    def forgets() -> int:
        return None  # type: ignore[return-value]  # on purpose

    def nested() -> list[Receipt]:
        return [{"too": "ada"}]  # type: ignore[list-item]  # on purpose

    for function, text in (
        (number, "Expected `int`, got `str`"),
        (forgets, "Expected `int`, got `None`"),
        (nested, "missing required field `to`"),
    ):
        message = _end(memory, function)
        assert (message.state, message.reason) == (tampu.State.DEAD, RESULT_INVALID)
        name = function.__qualname__
        assert f"the result does not match the annotation of {name}: " in str(message.last_error)
        assert text in str(message.last_error)


def test_results_that_match_in_any_way_are_done(memory: tampu.App) -> None:
    def optional() -> int | None:
        return None

    def as_dict() -> Receipt:
        return {"to": "ada"}  # type: ignore[return-value]  # a publisher reads it as a receipt

    def nothing() -> None: ...

    def anything() -> Any:
        return {1: "x"}

    def bare():
        return "x"

    def whole() -> float:
        return 1

    for function in (optional, as_dict, nothing, anything, bare, whole):
        assert _end(memory, function).state is tampu.State.DONE, function.__name__
