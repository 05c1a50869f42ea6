"""tampu, the library used directly: published 1000 at a time, claimed and acked in batches (the third argument)."""

import sys

from counting import PAYLOAD, URL, Timer, chunks, jobs, tell

import tampu

with tampu.open(URL) as q:
    with Timer() as fill:
        for size in chunks(1000):
            q.publish_many("bench", [PAYLOAD] * size)
    while leases := q.claim("bench", limit=int(sys.argv[3])):
        jobs.one(len(leases))
        q.settle([tampu.Ack(lease) for lease in leases])
tell(fill)
