"""Authentication and permissions: keys, bearer tokens, browser sessions, grants."""
