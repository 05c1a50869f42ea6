"""A server as `tampu serve` starts it; it prints its url as JSON."""

from __future__ import annotations

import sys

import msgspec

from tampu.server import logs
from tampu.server.run import Running
from tampu.server.settings import ServerSettings

if __name__ == "__main__":
    settings = ServerSettings(url=sys.argv[1], port=0, log_level="error")
    logs.set_up(settings)
    running = Running(settings)
    print(msgspec.json.encode({"url": running.url}).decode(), flush=True)
    running.run()
