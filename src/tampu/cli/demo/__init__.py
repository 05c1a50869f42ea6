"""`tampu demo`: a queue at work in the terminal, then its server and the lake."""
