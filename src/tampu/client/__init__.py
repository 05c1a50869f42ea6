"""The store over HTTP: what `tampu.open("http://…")` returns. It has the same interface as a local store."""
