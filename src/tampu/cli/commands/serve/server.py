"""`tampu serve`: runs the server. Each server setting is an option, generated from its description."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

import tampu
from tampu.cli.app import command
from tampu.cli.plain_help import escape
from tampu.cli.session import Session, hidden
from tampu.server.settings import DURATIONS, ServerSettings

_PANEL = "Serve"


def serve(session: Session, /, **given: Any) -> None:
    """Serve the store over HTTP: API, metrics and dashboard."""
    try:
        from tampu.server import logs, settings
        from tampu.server.run import Running
    except ImportError as error:
        raise tampu.InvalidConfig(f"the server needs {error.name}", hint="pip install 'tampu[server]'") from error

    file = given.pop("config", None)
    if session.url is not None:
        given["url"] = session.url
    config = settings.load(file, **given)
    logs.set_up(config)
    running = Running(config)
    about = running.about(sign_in=sys.stdout.isatty())
    if session.json:
        session.out.document(about)
    else:
        session.out.line(f"tampu serves {hidden(config.url)} at {about.url}")
        if about.sign_in is not None:
            session.out.line(f"sign in (the link works once, for 15 minutes): {about.sign_in}")
        if about.key_file is not None:
            session.out.line(f"the admin key is in {about.key_file}")
        if not config.auth:
            session.out.line("auth is off: every user of this machine is admin")
    running.run()


def _options() -> list[inspect.Parameter]:
    file = typer.Option("--config", metavar="FILE", help="Settings file (default: tampu.toml, if it exists)")
    made = [_option("config", Annotated[Path | None, file])]
    defaults = ServerSettings()
    for name, annotation in get_type_hints(ServerSettings, include_extras=True).items():
        if name != "url":  # a global option of the command
            kind, about = get_args(annotation)
            flag = f"--{name.replace('_', '-')}"
            typer_option = typer.Option(
                f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
                help=escape(f"{about.description} (TAMPU_{name.upper()}, or {_shown(getattr(defaults, name))})"),
                show_default=False,
                metavar="TIME" if name in DURATIONS else None,
            )
            plain = kind if kind in (bool, int, float) and name not in DURATIONS else str
            made.append(_option(name, Annotated[plain | None, typer_option]))
    return made


def _option(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else str(value)


_session = inspect.Parameter("session", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Session)
serve.__signature__ = inspect.Signature([_session, *_options()])  # type: ignore[attr-defined]  # read by inspect
command("serve", _PANEL)(serve)
