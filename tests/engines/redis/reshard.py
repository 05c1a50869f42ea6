"""Slots of a cluster that go from server to server as the tools of Redis move them, in steps that a test chooses."""

from __future__ import annotations

from typing import Any

from redis.crc import key_slot

from tests.servers.redis import Server, Trio


class Move:
    """The slot of a tag, on its way."""

    def __init__(self, trio: Trio, tag: str) -> None:
        self._trio = trio
        self.slot = key_slot(tag.encode())
        self.source = next(server for server in trio.servers if owns(server, self.slot))
        self.target = next(server for server in trio.servers if server is not self.source)

    def _set(self, server: Server, how: str, other: Server) -> None:
        ask(server, "CLUSTER SETSLOT", self.slot, how, ask(other, "CLUSTER MYID"))

    def begin(self) -> None:
        self._set(self.target, "IMPORTING", self.source)
        self._set(self.source, "MIGRATING", self.target)

    def carry(self, count: int) -> int:
        """Move so many keys; how many that were."""
        keys = ask(self.source, "CLUSTER GETKEYSINSLOT", self.slot, count)
        for key in keys:
            ask(self.source, "MIGRATE", "127.0.0.1", self.target.port, key, 0, 60_000)
        return len(keys)

    def tell(self, *servers: Server) -> None:
        """These know from now on that it is the target's."""
        for server in servers:
            self._set(server, "NODE", self.target)

    def finish(self) -> None:
        while self.carry(10):
            pass
        self.tell(self.target, self.source, *self._trio.servers)


def ask(server: Server, *command: Any) -> Any:
    with server.client() as client:
        return client.execute_command(*command)


def owns(server: Server, slot: int) -> bool:
    mine = ask(server, "CLUSTER MYID")
    mine = mine.decode() if isinstance(mine, bytes) else mine
    return any(
        info["node_id"] == mine and any(int(span[0]) <= slot <= int(span[-1]) for span in info["slots"])
        for info in ask(server, "CLUSTER NODES").values()
    )
