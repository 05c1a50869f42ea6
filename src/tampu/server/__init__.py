"""The HTTP server of one store: API, authentication, metrics, event feed, dashboard. See docs/how-to/serve.md."""
