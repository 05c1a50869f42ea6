"""`make bench-http`: the server beside a bare handler, and beside the embedded library."""
