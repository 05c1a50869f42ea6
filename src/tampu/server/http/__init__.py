"""HTTP: the protocol on a connection, requests, message handlers, fast paths, error responses, OpenAPI."""
