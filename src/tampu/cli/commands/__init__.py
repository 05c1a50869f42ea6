"""The commands: a folder for each panel of the help, a module for each command or family of commands."""
