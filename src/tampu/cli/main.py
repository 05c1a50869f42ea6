"""`tampu`, the command. Importing the modules below registers their subcommands, in the order of the help."""

from __future__ import annotations

from tampu.cli import publishing, working  # isort: skip
from tampu.cli import looking, showing, journal  # isort: skip
from tampu.cli import states, config, moving  # isort: skip
from tampu.cli import doctor, bench, demo  # isort: skip
from tampu.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    app(prog_name="tampu")
