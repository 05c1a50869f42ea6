"""Tasks (functions that handle messages) and the worker that claims messages and calls them.

The command line is in `tampu.cli`; how messages are stored is up to the engines.
"""
