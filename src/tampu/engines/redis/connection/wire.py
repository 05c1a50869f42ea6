"""Sends script calls: one pipeline to a server, or one per server of a cluster, all at the same time.

The server that has a tag is the one server, the master that Sentinel names, or a master of a cluster, by slot.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis import exceptions
from redis.crc import key_slot
from redis.sentinel import Sentinel

from tampu.engines.redis.connection.node import FINAL, Lost, Node, Patience, Sent, lost, translate, with_source
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


class Single:
    """One server, or the master that Sentinel names."""

    def __init__(self, url: ServerUrl) -> None:
        self._place = url
        self.only = Node(url, self._where)

    def _where(self) -> tuple[str, int]:
        url = self._place
        if url.service is None:
            return url.hosts[0]
        make: Any = Sentinel  # the driver has no types
        sentinel_client = make(
            list(url.hosts), socket_timeout=2.0, socket_connect_timeout=2.0, password=url.sentinel_password
        )
        try:
            host, port = sentinel_client.discover_master(url.service)
        except exceptions.RedisError as error:
            raise exceptions.ConnectionError(f"no Sentinel knows the master of {url.service}: {error}") from error
        finally:
            for sentinel in sentinel_client.sentinels:
                sentinel.close()
        return str(host), int(port)

    def node(self, tag: str) -> Node:
        del tag
        return self.only

    def masters(self) -> list[Node]:
        return [self.only]

    def refresh(self) -> None:
        self.only.drop()

    def close(self) -> None:
        self.only.close()


class Cluster:
    """The masters of a cluster, by slot."""

    def __init__(self, url: ServerUrl) -> None:
        self._place = url
        self._lock = threading.Lock()
        self._nodes: dict[tuple[str, int], Node] = {}
        self._slots: list[tuple[int, int, Node]] = []
        self._tags: dict[str, Node] = {}

    def at(self, address: tuple[str, int]) -> Node:
        with self._lock:
            known = self._nodes.get(address)
            if known is None:
                known = self._nodes[address] = Node(self._place, lambda: address)
            return known

    def node(self, tag: str) -> Node:
        known = self._tags.get(tag)
        if known is None:
            if not self._slots:
                self.refresh()
            slot = key_slot(tag.encode())
            for first, last, node in self._slots:
                if first <= slot <= last:
                    known = self._tags[tag] = node
                    break
            else:
                raise exceptions.ClusterDownError(f"no server has slot {slot}")
        return known

    def follow(self, tag: str, address: tuple[str, int]) -> None:
        """Use the address a server redirected us to: the servers that `refresh` asks may not know of the move yet."""
        self._tags[tag] = self.at(address)

    def masters(self) -> list[Node]:
        if not self._slots:
            self.refresh()
        return list({id(node): node for _, _, node in self._slots}.values())

    def refresh(self) -> None:
        """Ask any server for the slot map. A server with an empty map is not, or no longer, in the cluster."""
        error: Exception = exceptions.ConnectionError("no server of the cluster answers")
        for asked, asked_port in dict.fromkeys((*self._nodes, *self._place.hosts)):
            try:
                (reply,) = self.at((asked, asked_port)).send([("CLUSTER", "SLOTS")]).replies()
                if isinstance(reply, Exception):
                    raise reply
                if not reply:
                    raise exceptions.ClusterDownError(f"{asked}:{asked_port} has no slot map")
            except (exceptions.RedisError, Lost, OSError) as failed:
                error = failed
                continue
            slots = []
            for first, last, (host, port, *_), *_ in reply:
                slots.append((int(first), int(last), self.at((host.decode() or asked, int(port)))))
            self._slots, self._tags = slots, {}
            return
        raise error if isinstance(error, FINAL) else exceptions.ConnectionError(str(error)) from error

    def close(self) -> None:
        with self._lock:
            nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            node.close()


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
