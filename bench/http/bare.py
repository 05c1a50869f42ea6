"""The ceiling: the same uvicorn with the same protocol, and a handler that only decodes the body and answers."""

from __future__ import annotations

from typing import Any

import msgspec
import uvicorn

from tampu.server.run import listen, uvicorn_config
from tampu.server.settings import ServerSettings

ANSWER = msgspec.json.encode(
    {
        "id": "01a1e3ce-0a3e-7000-8021-b42987946ea3",
        "state": "ready",
        "created_at": "2026-11-16T10:01:33.502130Z",
        "max_attempts": 5,
    }
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    msgspec.json.decode(body)
    await send(
        {
            "type": "http.response.start",
            "status": 201,
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))],
        }
    )
    await send({"type": "http.response.body", "body": ANSWER})


if __name__ == "__main__":
    settings = ServerSettings(port=0)
    socket = listen(settings)
    print('{{"url":"http://{}:{}"}}'.format(*socket.getsockname()), flush=True)
    uvicorn.Server(uvicorn_config(settings, app)).run(sockets=[socket])
