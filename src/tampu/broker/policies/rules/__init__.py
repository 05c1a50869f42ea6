"""Rules: what happens to a message for which an expression is true."""
