"""`tampu`, the command. Importing a module of subcommands registers them; the order here is the order of the help."""

from __future__ import annotations

import importlib

from tampu.cli.app import app

__all__ = ["app", "main"]

for _name in (
    "publishing",
    "schedules",
    "working",
    "work",
    "looking",
    "showing",
    "journal",
    "states",
    "config",
    "moving",
    "remove",
    "copying",
    "pipeline",
    "lake",
    "serving",
    "keys",
    "doctor",
    "migrating",
    "bench",
    "demo",
):
    importlib.import_module(f"tampu.cli.{_name}")


def main() -> None:
    app(prog_name="tampu")
