"""Ports for servers that tests start, kill and start again on the same one.

They lie below those that the system hands out by itself. So while a server is away nobody is given its port: neither a
server that asked for any, nor a client that knocks again and again, which would end up connected to itself. And no two
processes of one run of the tests choose the same.
"""

import itertools
import os
import random
import socket

_FIRST = 12_000
_PORTS = 10_000
BUS = 10_000
"""A Redis cluster talks among itself on the port this much higher."""
_mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_processes = max(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), _mine + 1)
_turns = itertools.count(random.SystemRandom().randrange(_PORTS))


def free_port() -> int:
    """A port that is free, and so is its bus."""
    for turn in itertools.islice(_turns, _PORTS):
        port = _FIRST + turn % (_PORTS // _processes) * _processes + _mine
        if _is_free(port) and _is_free(port + BUS):
            return port
    raise OSError(f"no port is free from {_FIRST} to {_FIRST + _PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
