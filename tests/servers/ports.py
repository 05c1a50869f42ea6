"""Ports for servers that tests start, kill and start again on the same one.

They lie below those that the system hands out by itself. So while a server is away nobody is given its port: neither a
server that asked for any (Spark takes what a stray client sends for the length of a text, and runs out of memory), nor
a client that knocks again and again, which would end up connected to itself. And no two processes that run tests on
this machine have the same: who takes one locks it for as long as it lives.
"""

import fcntl
import functools
import itertools
import os
import random
import socket

_FIRST = 12_000
_PORTS = 10_000
BUS = 10_000
"""A Redis cluster talks among itself on the port this much higher."""
_turns = itertools.count(random.SystemRandom().randrange(_PORTS))
_ours: set[tuple[int, int]] = set()
"""(process, port): locks do not tell us from ourselves, and a child has those of its parent no more."""


def free_port() -> int:
    """A port that is free, and so is its bus; nobody else is given it while this process lives."""
    for turn in itertools.islice(_turns, _PORTS):
        port = _FIRST + turn % _PORTS
        if _lock(port) and _is_free(port) and _is_free(port + BUS):
            return port
    raise OSError(f"no port is free from {_FIRST} to {_FIRST + _PORTS}")


def _lock(port: int) -> bool:
    """A byte of a file stands for each port. Its lock ends with the process, however that ends."""
    if (os.getpid(), port) in _ours:
        return False
    try:
        fcntl.lockf(_register(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _ours.add((os.getpid(), port))
    return True


@functools.cache
def _register() -> int:
    """Stays open: closing it would give up all locks."""
    return os.open(f"/tmp/tampu-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)  # one, whatever TMPDIR says


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
