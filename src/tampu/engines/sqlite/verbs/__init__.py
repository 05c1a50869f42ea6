"""Faster ways of the common verbs, for plain messages. Each leaves all else to the rules in `tampu.engines.sql`."""
