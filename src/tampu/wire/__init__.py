"""The HTTP format, shared by server and client: bodies, problems, media types, stream frames. No I/O."""
