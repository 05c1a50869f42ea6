"""tampu, the library used directly: published 1000 at a time, claimed and acked in batches (the third argument)."""

import sys

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

import tampu

with tampu.open(URL) as store:
    with Timer() as fill:
        for size in chunks(1000):
            store.publish_many("bench", [PAYLOAD] * size)
    while leases := store.claim("bench", limit=int(sys.argv[3])):
        jobs.one(len(leases))
        store.settle([tampu.Ack(lease) for lease in leases])
tell(fill)
