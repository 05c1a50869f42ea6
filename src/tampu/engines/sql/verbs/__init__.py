"""One file per verb. `table` says which function runs which call, and in which order. What they share is in `rules`."""
