"""From bytes on a connection to handlers and back: protocol, requests, fast paths, errors, OpenAPI."""
