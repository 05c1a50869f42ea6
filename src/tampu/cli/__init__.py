"""The `tampu` command: options, output and exit codes.

Not here: what a command does. That is a call of the library, so programs can do all of it without the command.
"""
