"""Asks on their way: one pipeline to a server, or one per server of a cluster, all under way at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis import exceptions

from tampu.engines.redis.node import FINAL, Lost, Node, Patience, Sent, lost, translate, whole
from tampu.engines.redis.routes import Cluster, Single
from tampu.engines.redis.script_calls import ScriptCall
from tampu.engines.redis.urls import Place
from tampu.model.errors import Unavailable

_NOT_DONE = (
    exceptions.NoScriptError,
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,
    exceptions.ReadOnlyError,
    exceptions.BusyLoadingError,
)
"""The server says that it did not do it: safe to send again."""

_MOVED = (
    exceptions.MovedError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.BusyLoadingError,
    Lost,
)
"""Servers may have changed places."""


class Wire:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.route: Single | Cluster = Cluster(place) if place.cluster else Single(place)
        self.on_lost: Callable[[], None] = lambda: None

    def send(self, asks: Sequence[ScriptCall], *, safe: bool = False) -> list[Any]:
        """A reply for each ask, or a `TampuError`. ``safe``: they only read, so a broken connection is tried again."""
        if isinstance(self.route, Single):
            try:
                sent = self.route.only.send([ask.command for ask in asks])
                answers = sent.replies()
            except Exception as error:
                return self._send(asks, [self._failed(error)] * len(asks), safe=safe)
            return answers if sent.clean else self._send(asks, answers, safe=safe)
        return self._send(asks, None, safe=safe)

    def _failed(self, error: Exception) -> Exception:
        """Everything of a pipeline failed; raised, if it is nothing of the wire's."""
        if isinstance(error, Lost):
            self._look_again()
            return error
        if isinstance(error, exceptions.RedisError | OSError):
            self._look_again()
            return _unsent(error)
        raise error

    def _send(self, asks: Sequence[ScriptCall], answers: list[Any] | None, *, safe: bool) -> list[Any]:
        """What was not carried out is sent again, as long as there is patience. ``answers``: of a first round."""
        replies: list[Any] = [None] * len(asks)
        left = list(range(len(asks)))
        patience = Patience()
        texts: set[int] = set()
        moved: set[int] = set()
        while left:
            if answers is None:
                answers = self._round([asks[i] for i in left], [i in texts for i in left])
            at_once, later = [], []
            for i, answer in zip(left, answers, strict=True):
                replies[i] = answer
                if not self._may_go_again(answer, safe=safe):
                    continue
                if isinstance(answer, exceptions.NoScriptError):
                    texts.add(i)
                    at_once.append(i)
                elif isinstance(answer, exceptions.MovedError) and i not in moved:
                    moved.add(i)
                    at_once.append(i)
                else:
                    later.append(i)
            if later and not patience.wait():
                later = []
            left, answers = sorted(at_once + later), None
        return [self._final(reply) for reply in replies]

    def _may_go_again(self, answer: Any, *, safe: bool) -> bool:
        if isinstance(answer, exceptions.AskError) and isinstance(self.route, Single):
            return False  # the url names one server, which is of a cluster
        return isinstance(answer, _NOT_DONE) or (safe and isinstance(answer, Lost))

    def _final(self, reply: Any) -> Any:
        if isinstance(reply, Lost):
            return lost(reply, self.place)
        return translate(reply, self.place) if isinstance(reply, Exception) else reply

    def _round(self, asks: Sequence[ScriptCall], texts: Sequence[bool]) -> list[Any]:
        """One pipeline per server. What could not be sent is a `BusyLoadingError`: it was not carried out."""
        answers: list[Any] = [None] * len(asks)
        groups: dict[Node, list[int]] = {}
        try:
            for i, ask in enumerate(asks):
                groups.setdefault(self.route.node(ask.tag), []).append(i)
        except (exceptions.RedisError, OSError) as error:
            return [_unsent(error)] * len(asks)
        for places, replies in _exchange(
            groups, [whole(a) if t else a.command for a, t in zip(asks, texts, strict=True)]
        ):
            for i, reply in zip(places, replies, strict=True):
                answers[i] = reply
        for i, answer in enumerate(answers):
            if isinstance(answer, exceptions.AskError) and not isinstance(answer, exceptions.MovedError):
                answers[i] = self._elsewhere(asks[i], answer)
        if any(isinstance(answer, _MOVED) for answer in answers):
            self._look_again()
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, exceptions.MovedError) and isinstance(self.route, Cluster):
                self.route.follow(ask.tag, (answer.host, answer.port))
        return answers

    def _look_again(self) -> None:
        """Servers changed: forget what was known of them."""
        self.on_lost()
        with contextlib.suppress(exceptions.RedisError, OSError):  # the next round says so
            self.route.refresh()

    def _elsewhere(self, ask: ScriptCall, error: exceptions.AskError) -> Any:
        """A slot that is just being moved: this one goes to the new server, the next ones not yet."""
        if isinstance(self.route, Single):
            return error
        try:
            return self.route.at((error.host, error.port)).send([("ASKING",), whole(ask)]).replies()[1]
        except (exceptions.RedisError, OSError) as failed:
            return _unsent(failed)
        except Lost as failed:
            return failed

    def one(self, node: Node, *command: Any) -> Any:
        """A command to one certain server; only for looking."""
        try:
            (reply,) = node.send([command]).replies()
        except (exceptions.RedisError, OSError, Lost) as error:
            raise Unavailable(f"can not reach {self.place}: {error}") from error
        if isinstance(reply, Exception):
            raise translate(reply, self.place)
        return reply

    def close(self) -> None:
        self.route.close()


def _exchange(groups: dict[Node, list[int]], commands: list[tuple[Any, ...]]) -> Iterator[tuple[list[int], list[Any]]]:
    """Send to all servers, then read from each: they work at the same time."""
    under_way: list[tuple[list[int], Sent | Exception]] = []
    for node, places in groups.items():
        try:
            under_way.append((places, node.send([commands[i] for i in places])))
        except Lost as error:
            under_way.append((places, error))
        except (exceptions.RedisError, OSError) as error:
            under_way.append((places, _unsent(error)))
    for places, sent in under_way:
        if isinstance(sent, Sent):
            try:
                yield places, sent.replies()
            except Lost as error:
                yield places, [error] * len(places)
        else:
            yield places, [sent] * len(places)


def _unsent(error: Exception) -> Exception:
    """Not carried out, for it was never sent."""
    return error if isinstance(error, FINAL) else exceptions.BusyLoadingError(str(error))
