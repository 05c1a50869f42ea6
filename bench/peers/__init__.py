"""Other queues compared with tampu: the same server, the same durability, no-op jobs, in one run.

Each runs in its own environment, because their requirements conflict: `requirements/peers-*.txt` and
`node/package-lock.json` pin them, `environments.py` makes them on first use. `scripts/` has one script
for each, `counting.py` there says what a script has to do.
"""
