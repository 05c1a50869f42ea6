"""Commands of the panel Inspect. They change nothing."""
