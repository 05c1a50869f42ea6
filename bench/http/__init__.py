"""`make bench-http`: the server, compared with a bare handler and with the embedded library."""
