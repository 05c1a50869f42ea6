"""The HTTP server of one store: API, authentication, metrics, event feed, dashboard. See docs/how-to/serve.md.

Not here: the rules of queues. A route checks who may call, then calls the broker as a program would.
"""
