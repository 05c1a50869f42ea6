"""Messages, leases, outcomes, settings, states, transitions, errors: frozen structs and pure functions, no I/O."""
