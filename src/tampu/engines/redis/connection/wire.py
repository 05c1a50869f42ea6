"""Sends script calls: one pipeline to a server, or one per server of a cluster, all at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis import exceptions

from tampu.engines.redis.connection.node import FINAL, Lost, Node, Patience, Sent, lost, translate, with_source
from tampu.engines.redis.connection.routes import Cluster, Single
from tampu.engines.redis.connection.script_calls import ScriptCall
from tampu.engines.redis.connection.urls import ServerUrl
from tampu.model.errors import Unavailable

_NOT_DONE = (
    exceptions.NoScriptError,
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,
    exceptions.ReadOnlyError,
    exceptions.BusyLoadingError,
)
"""The server did not run the command: safe to send again."""

_MOVED = (
    exceptions.MovedError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.BusyLoadingError,
    Lost,
)
"""The slot or the role of master may have moved to another server."""


class Wire:
    def __init__(self, url: ServerUrl) -> None:
        self.url = url
        self.route: Single | Cluster = Cluster(url) if url.cluster else Single(url)
        self.on_lost: Callable[[], None] = lambda: None

    def send(self, calls: Sequence[ScriptCall], *, safe: bool = False) -> list[Any]:
        """One reply or `TampuError` per call. ``safe``: repeating does no harm, so a broken connection is retried."""
        if isinstance(self.route, Single):
            try:
                sent = self.route.only.send([call.command for call in calls])
                answers = sent.replies()
            except Exception as error:
                return self._send(calls, [self._failed(error)] * len(calls), safe=safe)
            return answers if sent.clean else self._send(calls, answers, safe=safe)
        return self._send(calls, None, safe=safe)

    def _failed(self, error: Exception) -> Exception:
        """The reply of every call in a failed pipeline. Raises errors that are not about the connection."""
        if isinstance(error, Lost):
            self._forget_routes()
            return error
        if isinstance(error, exceptions.RedisError | OSError):
            self._forget_routes()
            return _unsent(error)
        raise error

    def _send(self, calls: Sequence[ScriptCall], answers: list[Any] | None, *, safe: bool) -> list[Any]:
        """Send again what was not done, until the time is up. ``answers`` are those of a first round."""
        replies: list[Any] = [None] * len(calls)
        left = list(range(len(calls)))
        patience = Patience()
        with_text: set[int] = set()
        moved: set[int] = set()
        while left:
            if answers is None:
                answers = self._send_round([calls[i] for i in left], [i in with_text for i in left])
            retry_now, retry_later = [], []
            for i, answer in zip(left, answers, strict=True):
                replies[i] = answer
                if not self._may_retry(answer, safe=safe):
                    continue
                if isinstance(answer, exceptions.NoScriptError):
                    with_text.add(i)
                    retry_now.append(i)
                elif isinstance(answer, exceptions.MovedError) and i not in moved:
                    moved.add(i)
                    retry_now.append(i)
                else:
                    retry_later.append(i)
            if retry_later and not patience.wait():
                retry_later = []
            left, answers = sorted(retry_now + retry_later), None
        return [self._final(reply) for reply in replies]

    def _may_retry(self, answer: Any, *, safe: bool) -> bool:
        if isinstance(answer, exceptions.AskError) and isinstance(self.route, Single):
            return False  # the url names only one server of a cluster
        return isinstance(answer, _NOT_DONE) or (safe and isinstance(answer, Lost))

    def _final(self, reply: Any) -> Any:
        if isinstance(reply, Lost):
            return lost(reply, self.url)
        return translate(reply, self.url) if isinstance(reply, Exception) else reply

    def _send_round(self, calls: Sequence[ScriptCall], with_text: Sequence[bool]) -> list[Any]:
        """One pipeline per server. A call that could not be sent gets `BusyLoadingError`: it was not done."""
        answers: list[Any] = [None] * len(calls)
        groups: dict[Node, list[int]] = {}
        try:
            for i, call in enumerate(calls):
                groups.setdefault(self.route.node(call.tag), []).append(i)
        except (exceptions.RedisError, OSError) as error:
            return [_unsent(error)] * len(calls)
        for positions, replies in _exchange(
            groups, [with_source(a) if t else a.command for a, t in zip(calls, with_text, strict=True)]
        ):
            for i, reply in zip(positions, replies, strict=True):
                answers[i] = reply
        for i, answer in enumerate(answers):
            if isinstance(answer, exceptions.AskError) and not isinstance(answer, exceptions.MovedError):
                answers[i] = self._send_redirected(calls[i], answer)
        if any(isinstance(answer, _MOVED) for answer in answers):
            self._forget_routes()
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, exceptions.MovedError) and isinstance(self.route, Cluster):
                self.route.follow(call.tag, (answer.host, answer.port))
        return answers

    def _forget_routes(self) -> None:
        """Servers changed: drop what was cached about them."""
        self.on_lost()
        with contextlib.suppress(exceptions.RedisError, OSError):  # the next round gets the error
            self.route.refresh()

    def _send_redirected(self, call: ScriptCall, error: exceptions.AskError) -> Any:
        """Send one call to the server that its slot is being moved to; later calls still start at the old server."""
        if isinstance(self.route, Single):
            return error
        try:
            return self.route.at((error.host, error.port)).send([("ASKING",), with_source(call)]).replies()[1]
        except (exceptions.RedisError, OSError) as failed:
            return _unsent(failed)
        except Lost as failed:
            return failed

    def send_to(self, node: Node, *command: Any) -> Any:
        """Send a read-only command to one given server."""
        try:
            (reply,) = node.send([command]).replies()
        except (exceptions.RedisError, OSError, Lost) as error:
            raise Unavailable(f"cannot reach {self.url}: {error}") from error
        if isinstance(reply, Exception):
            raise translate(reply, self.url)
        return reply

    def close(self) -> None:
        self.route.close()


def _exchange(groups: dict[Node, list[int]], commands: list[tuple[Any, ...]]) -> Iterator[tuple[list[int], list[Any]]]:
    """Send to all servers, then read from each, so that they work at the same time."""
    under_way: list[tuple[list[int], Sent | Exception]] = []
    for node, positions in groups.items():
        try:
            under_way.append((positions, node.send([commands[i] for i in positions])))
        except Lost as error:
            under_way.append((positions, error))
        except (exceptions.RedisError, OSError) as error:
            under_way.append((positions, _unsent(error)))
    for positions, sent in under_way:
        if isinstance(sent, Sent):
            try:
                yield positions, sent.replies()
            except Lost as error:
                yield positions, [error] * len(positions)
        else:
            yield positions, [sent] * len(positions)


def _unsent(error: Exception) -> Exception:
    """The error for calls that were never sent, and so certainly not done."""
    return error if isinstance(error, FINAL) else exceptions.BusyLoadingError(str(error))
