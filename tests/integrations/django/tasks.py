"""Tasks of a Django project."""

from __future__ import annotations

from typing import Any

from django_tasks import task

RAN: list[Any] = []


@task()
def add(x: int, y: int = 0) -> int:
    RAN.append((x, y))
    return x + y


@task(queue_name="mail", priority=10)
async def mail(to: str) -> str:
    return f"sent to {to}"


@task(takes_context=True)
def attempt(context: Any) -> list[Any]:
    return [context.attempt, context.task_result.id]


@task()
def fail(kind: str) -> None:
    raise LookupError(kind)


@task(backend="retrying")
def flaky(path: str) -> int:
    """Fails twice."""
    with open(path, "a+") as file:  # noqa: PTH123 - appending
        file.write("x")
        file.seek(0)
        count = len(file.read())
    if count < 3:
        raise OSError("not yet")
    return count


@task()
def odd() -> Any:
    return object()
