"""The `tampu` command: options, output and exit codes. What a command does is a call of the library."""
