"""`tampu help`: the help of the command, or of one of its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from tampu.cli.app import Command, app

Words = Annotated[list[str] | None, typer.Argument(metavar="COMMAND…", help="Such as publish, or schedule add")]


@app.command("help", cls=Command, rich_help_panel="Maintain")
def help_(context: typer.Context, words: Words = None) -> None:
    """Show the help of a command, as its --help does."""
    context.find_root().command.main([*(words or []), "--help"], prog_name="tampu")
