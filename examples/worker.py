"""Worker threads that stop gracefully: on SIGTERM or Ctrl-C, each finishes its messages and claims no more.

Run it in two terminals at once to see the work shared. `--until-empty` stops when there is nothing left.
"""

import argparse
import os
import signal
import threading

import tampu


def handle(lease: tampu.Lease) -> int:
    number: int = lease.payload["number"]
    if number % 10 == 7 and lease.attempt == 1:
        raise RuntimeError("sevens fail the first time")
    return number * number


def work(store: tampu.Store, name: str, stop: threading.Event, *, until_empty: bool) -> None:
    while not stop.is_set():
        leases = store.claim("numbers", limit=5, lease=30, wait=0.5, worker=name)
        if not leases and until_empty and store.stats("numbers").depth == 0:
            return
        settlements: list[tampu.Ack | tampu.Nack] = []
        for lease in leases:
            try:
                settlements.append(tampu.Ack(lease, result=handle(lease)))
            except Exception as error:
                settlements.append(tampu.Nack(lease, error=repr(error)))
        for outcome in store.settle(settlements):
            print(f"{name}: {outcome.id} is {outcome.state or outcome.error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--until-empty", action="store_true")
    options = parser.parse_args()

    stop = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop.set())

    with tampu.open("worker.db") as store:
        store.queues.put("numbers", backoff=tampu.fixed(0.05), max_attempts=3)
        store.publish_many("numbers", [{"number": n} for n in range(40)])
        threads = [
            threading.Thread(
                target=work,
                args=(store, f"worker-{os.getpid()}-{n}", stop),
                kwargs={"until_empty": options.until_empty},
            )
            for n in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = store.stats("numbers")
        print(f"stopped: {stats.done} done, {stats.depth} still to do")


if __name__ == "__main__":
    main()
