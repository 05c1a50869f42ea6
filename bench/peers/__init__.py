"""Other queues beside tampu: the same server, the same durability, no-op jobs, in one run.

Each runs in an environment of its own, because they do not agree on versions: `requirements/peers-*.txt` and
`node/package-lock.json` pin them, `environments.py` makes them when they are first needed. `scripts/` has one script
for each, `counting.py` there says what a script has to do.
"""
