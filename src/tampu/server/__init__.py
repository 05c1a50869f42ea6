"""The server: one store's queues over HTTP, for those who may. See docs/how-to/serve.md."""
