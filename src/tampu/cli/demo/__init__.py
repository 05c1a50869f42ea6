"""`tampu demo`."""
