"""The HTTP format, shared by server and client: bodies, problems, media types, stream frames.

Not here: I/O, and the routes (`server/routes/`).
"""
