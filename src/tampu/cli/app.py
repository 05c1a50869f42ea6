"""The base of the command: global options, the session given to each subcommand, and error handling."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Container, Sequence
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from typer.core import TyperCommand, TyperGroup

import tampu
from tampu.cli import exits
from tampu.cli.output import exit_quietly
from tampu.cli.plain_help import escape, simplify
from tampu.cli.session import DEFAULT_URL, TOKEN, Session
from tampu.cli.streams import escape_unencodable, replace_closed
from tampu.model.similar import did_you_mean

P = ParamSpec("P")
GLOBAL = "Global options"


def option(*names_and_help: str, panel: str | None = None, **more: Any) -> Any:
    """An option of a command: its names, then its line in the help."""
    *names, help = names_and_help
    return typer.Option(*names, help=escape(help), rich_help_panel=panel, **more)


Url = Annotated[
    str | None, option("--url", f"File or url of the store (TAMPU_URL, or {DEFAULT_URL})", metavar="URL", panel=GLOBAL)
]
Tenant = Annotated[
    str | None, option("--tenant", "The tenant (TAMPU_TENANT, or default)", metavar="NAME", panel=GLOBAL)
]
Token = Annotated[
    str | None,
    option("--token", "The key for a server (TAMPU_TOKEN, which other users cannot read)", metavar="KEY", panel=GLOBAL),
]
Json = Annotated[bool, option("--json", "Print JSON for scripts, one document per line", panel=GLOBAL)]


class _PlainHelp:
    """Shows parameters as `plain_help` says."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # mixed into commands, which have it
        for param in params:
            simplify(param)
        return params


class Command(_PlainHelp, TyperCommand):
    pass


class _SubGroup(_PlainHelp, TyperGroup):
    pass


class Group(_PlainHelp, TyperGroup):
    """Turns every error into a short message and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - errors are always handled here
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        json = "--json" in given[: given.index("--") if "--" in given else None]
        replace_closed()
        escape_unencodable(sys.stdout, sys.stderr)
        try:
            code = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except tampu.TampuError as error:
            exits.print_error(exits.describe_error(error), json=json)
            code = exits.exit_code(error)
        except typer.TyperException as error:
            code = _usage(error, given, self.commands, json=json)
        except typer.Abort:
            exits.print_error(exits.describe("aborted", "nothing was changed"), json=json)
            code = exits.INTERRUPTED
        except BrokenPipeError:
            exit_quietly()
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # rich and typer exit with 1, as if the command had failed
                exit_quietly()
            raise
        except OSError as error:
            exits.print_error(exits.describe("system_error", str(error)), json=json)
            code = exits.FAILED
        sys.exit(code if isinstance(code, int) else exits.OK)


def _usage(error: typer.TyperException, given: list[str], commands: Container[str], *, json: bool) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return exits.BAD_INPUT  # typer has printed the help
    parameter = getattr(error, "param", None)
    path = "tampu" if context is None else " ".join(context.command_path.split())
    if context is None and hasattr(
        error, "option_name"
    ):  # for an option without its value typer does not say which command it belongs to
        path = " ".join(["tampu", *[word for word in given if word in commands][:1]])
    message = error.format_message().replace(": Value error, ", ": ")
    hint = _as_setting(getattr(error, "option_name", ""), given) if path == "tampu config" else None
    exits.print_error(
        exits.describe("usage", message, getattr(parameter, "name", None), hint or f"see {path} --help"),
        json=json,
    )
    return exits.BAD_INPUT


def _as_setting(option: str, given: list[str]) -> str | None:
    """How to write a queue setting that was given as an option."""
    name = option.lstrip("-").replace("-", "_")
    if name not in tampu.QueueConfig.__struct_fields__:
        return None
    for word, after in zip(given, [*given[1:], "-"], strict=True):
        start, equals, value = word.partition("=")
        if start == option:
            return f"write {name}={value if equals else 'VALUE' if after.startswith('-') else after}"
    return None


app = typer.Typer(
    cls=Group,
    name="tampu",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=exits.EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        import platform
        import sqlite3

        typer.echo(f"tampu {tampu.__version__} (Python {platform.python_version()}, SQLite {sqlite3.sqlite_version})")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    url: Url = None,
    tenant: Tenant = None,
    token: Token = None,
    json: Json = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, option("--version", "-v", "Show the version and exit", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """tampu: a durable task queue, in one file or on a database server.

    Global options may stand before or after the name of a command.
    """
    context.obj = Session(url=url, tenant=tenant, token=token, json=json)


def command(
    name: str, panel: str, epilog: str | None = None, *, of: typer.Typer | None = None, help: str | None = None
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Register a subcommand, also ``of`` a group. Its first argument is the session; the global options are added."""

    def register(function: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
        @functools.wraps(function)
        def run(context: typer.Context, *args: Any, **options: Any) -> None:
            common = {name: options.pop(name) for name in ("url", "tenant", "token", "json")}
            session = context.obj.with_options(**common)
            with session.token_in_use():
                try:
                    function(session, *args, **options)
                except tampu.NotFound as error:
                    suggest_queue(session, error)
                    raise
                except tampu.Unauthorized as error:
                    if TOKEN not in os.environ:
                        error.hint = f"give a key with --token, or in {TOKEN}"
                    raise

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        keyword = inspect.Parameter.KEYWORD_ONLY
        added = [
            inspect.Parameter("url", keyword, default=None, annotation=Url),
            inspect.Parameter("tenant", keyword, default=None, annotation=Tenant),
            inspect.Parameter("token", keyword, default=None, annotation=Token),
            inspect.Parameter("json", keyword, default=False, annotation=Json),
        ]
        first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [first, *(p.replace(kind=keyword) for p in own), *added]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        (of or app).command(name, cls=Command, rich_help_panel=panel, epilog=epilog, help=help)(run)
        return function

    return register


def group(name: str, panel: str, help: str) -> typer.Typer:
    """Register a group of subcommands; `command` adds them with ``of``."""
    made = typer.Typer(name=name, cls=_SubGroup, help=help, no_args_is_help=True)
    app.add_typer(made, rich_help_panel=panel)
    return made


_NO_QUEUE = "no queue "


def suggest_queue(session: Session, error: tampu.NotFound) -> None:
    """Add to the error the queue that was probably meant."""
    if error.field != "queue" or not error.message.startswith(_NO_QUEUE):
        return
    with contextlib.suppress(tampu.TampuError):  # a key that may not list queues
        with session.open() as store:
            known = store.queues.list()
        error.message += did_you_mean(error.message.removeprefix(_NO_QUEUE), known)


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """Shell completion of queue names, from the store."""
    given = context.find_root().params | {name: value for name, value in context.params.items() if value}
    session = Session(url=given.get("url"), tenant=given.get("tenant"), token=given.get("token"), json=False)
    try:
        with session.token_in_use(), session.open() as store:
            return [name for name in store.queues.list() if name.startswith(incomplete)]
    except tampu.TampuError:
        return []


QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue", autocompletion=queue_names)]
QueueNames = Annotated[
    list[str], typer.Argument(metavar="QUEUE…", help="One or more queues", autocompletion=queue_names)
]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Message ids")]
STATES = "ready, delayed, leased, held, done, dead, cancelled or expired"
DryRun = Annotated[bool, option("--dry-run", "Show what would happen, and change nothing")]
