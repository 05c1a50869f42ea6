"""Which server has a tag: the one server, the master that Sentinel names, or a master of a cluster, by slot."""

from __future__ import annotations

import threading
from typing import Any

from redis import exceptions
from redis.crc import key_slot
from redis.sentinel import Sentinel

from tampu.engines.redis.connection.node import FINAL, Lost, Node
from tampu.engines.redis.connection.urls import ServerUrl


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
