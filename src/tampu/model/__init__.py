"""Messages, leases, outcomes, settings, states, transitions, errors: frozen structs and pure functions.

Not here: I/O, and anything that needs an engine, a thread or a clock.
"""
