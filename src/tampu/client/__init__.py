"""The store over HTTP: what `tampu.open("http://…")` returns. It has the same interface as a local store.

Not here: the bodies that are sent (`wire/`), and anything that decides: the server does that.
"""
