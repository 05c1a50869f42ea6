"""The same interface over HTTP: what `tampu.open("http://…")` answers with."""
