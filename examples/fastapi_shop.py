"""A shop on FastAPI: a request publishes a task and answers at once; a worker sends the receipt.

In production these are two programs: `uvicorn fastapi_shop:api` and `tampu work fastapi_shop:tasks`. Run alone, this
file starts both in one process, and places an order.
"""

import contextlib
import json
import threading
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import tampu

tasks = tampu.App("fastapi_shop.db")


class Order(BaseModel):
    email: str
    items: list[str]


@tasks.task(queue="receipts", max_attempts=5, timeout=30)
async def send_receipt(order: Order) -> str:
    return f"sent to {order.email}: {', '.join(order.items)}"


@tasks.cron("0 3 * * *", tz="Europe/Rome")
@tasks.task
def count_stock() -> None:
    """Runs once a night, however many workers there are."""


@contextlib.asynccontextmanager
async def closing(_api: FastAPI) -> AsyncIterator[None]:
    yield
    tasks.close()


api = FastAPI(lifespan=closing)


@api.post("/orders", status_code=202)
async def place_order(order: Order) -> dict[str, str]:
    published = await send_receipt.publish_async(order)
    return {"task": published.id}


@api.get("/tasks/{id}")
async def look(id: str) -> dict[str, Any]:
    try:
        message = await tasks.store_async.result(id, wait=10)  # waits for its end without polling
    except tampu.NotFound:
        raise HTTPException(404) from None
    return {"state": message.state, "result": message.result}


def ask(url: str, body: Any = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, raw, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def main() -> None:
    server = uvicorn.Server(uvicorn.Config(api, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    with tampu.working(tasks):
        thread.start()
        while not server.started:
            thread.join(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        placed = ask(f"http://127.0.0.1:{port}/orders", {"email": "ada@example.org", "items": ["tea", "milk"]})
        seen = ask(f"http://127.0.0.1:{port}/tasks/{placed['task']}")
        print(f"{seen['state']}: {seen['result']}")
        print(f"stock is counted at {tasks.store.schedules.get('count_stock').cron}")
        server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
