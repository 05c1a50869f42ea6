"""The same nodes as in the tests of the server."""

from tests.server.conftest import stall, start, web

__all__ = ["stall", "start", "web"]
