"""Who asks, and what they may do: keys, bearer tokens, sessions of the browser, and grants."""
