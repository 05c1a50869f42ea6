"""The `tampu` command. Importing a module registers its subcommands; the order here is the order in the help."""

from __future__ import annotations

import importlib

from tampu.cli.app import app

__all__ = ["app", "main"]

for _name in (
    "commands.work.publish",
    "commands.work.schedules",
    "commands.work.claim",
    "commands.work.worker",
    "commands.inspect.messages",
    "commands.inspect.top",
    "commands.inspect.show",
    "commands.inspect.journal",
    "commands.inspect.trace",
    "commands.inspect.audit",
    "commands.manage.states",
    "commands.manage.config",
    "commands.manage.messages",
    "commands.manage.dead",
    "commands.manage.remove",
    "commands.manage.agents",
    "commands.manage.followers",
    "commands.manage.copy",
    "commands.manage.schemas",
    "commands.manage.rules",
    "commands.manage.subscriptions",
    "commands.manage.alerts",
    "commands.manage.topology",
    "commands.manage.webhooks",
    "commands.manage.holds",
    "commands.manage.erase",
    "commands.manage.patterns",
    "commands.manage.reviews",
    "lake.pipeline",
    "lake.query",
    "commands.serve.server",
    "commands.serve.keys",
    "commands.serve.mcp",
    "commands.maintain.doctor",
    "commands.maintain.migrate",
    "commands.maintain.bench",
    "commands.maintain.help",
    "demo.demo",
):
    importlib.import_module(f"tampu.cli.{_name}")


def main() -> None:
    app(prog_name="tampu")
