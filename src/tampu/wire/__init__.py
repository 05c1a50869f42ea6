"""The HTTP format: request and response bodies, problems, media types, stream frames. Shared by server and client; no I/O."""
