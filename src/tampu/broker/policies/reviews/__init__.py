"""Reviews: a message waits until a person has decided about it."""
