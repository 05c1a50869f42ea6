"""Legal holds: what must not be removed."""
