"""Tasks (functions that handle messages) and the worker that claims messages and calls them.

Not here: the command line (`cli/`), and how messages are stored (`engines/`). A worker uses a store as any program.
"""
