"""The small loops that keep promises over time, and the one supervisor that runs them."""
