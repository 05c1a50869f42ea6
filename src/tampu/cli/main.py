"""The `tampu` command. Importing a module registers its subcommands; the order here is the order in the help."""

from __future__ import annotations

import importlib

from tampu.cli.app import app

__all__ = ["app", "main"]

for _name in (
    "commands.publish",
    "commands.schedules",
    "commands.claim",
    "commands.work",
    "commands.inspect",
    "commands.show",
    "commands.journal",
    "commands.states",
    "commands.config",
    "commands.admin",
    "commands.remove",
    "commands.copy",
    "lake.pipeline",
    "lake.query",
    "commands.serve",
    "commands.keys",
    "commands.doctor",
    "commands.migrate",
    "commands.bench",
    "demo.demo",
):
    importlib.import_module(f"tampu.cli.{_name}")


def main() -> None:
    app(prog_name="tampu")
