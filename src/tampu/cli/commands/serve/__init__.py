"""Commands of the panel Serve: the server and its keys."""
