"""What goes over HTTP: bodies, views of messages, problems and media types. Shared by server and client; no I/O."""
