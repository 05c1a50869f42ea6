"""Queries of the lake: `sql export insights`. They do not start Spark; they read what the pipeline has committed."""

from __future__ import annotations

import contextlib
import csv
import itertools
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tampu
from tampu.cli import exits, output, streams
from tampu.cli.app import command, option
from tampu.cli.lake import lake_option
from tampu.cli.lake.lake_option import PANEL, LakeOptions, LakePath
from tampu.cli.output import text
from tampu.cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from tampu.lake.query import Questions

_PROMPT = "lake> "
_MORE = "  ... "


@command("sql", PANEL)
def sql(
    session: Session,
    query: Annotated[str | None, typer.Argument(metavar="SQL", help="A SELECT; without it, a prompt")] = None,
    lake: LakePath = None,
    option: LakeOptions = None,
    as_csv: Annotated[bool, option("--csv", "Print CSV")] = False,
    limit: Annotated[int, option("--limit", "-n", "Maximum rows; 0: all", min=0)] = 1000,
) -> None:
    """Query the lake with SQL (DuckDB): bronze.events, silver.messages, gold.queue_minutes and others.

    Queries are read-only and see only the lake. With --tenant, they see only the rows of that tenant. Put the column
    names "at", "group" and "offset" in double quotes: they are SQL keywords.
    """
    if as_csv and session.json:
        raise tampu.InvalidMessage("choose --csv or --json", field="csv")
    with lake_option.to_query(session, lake, option).ask(tenant=session.tenant) as ask:
        if query is None and streams.is_interactive():
            _prompt(session, ask, limit)
        else:
            _answer(session, ask, sys.stdin.read() if query is None else query, limit, as_csv=as_csv)


def _answer(session: Session, ask: Questions, query: str, limit: int, *, as_csv: bool = False) -> None:
    from tampu.lake.export import cell, plain
    from tampu.lake.query import fetched

    answer = ask.read(query)
    names = [column[0] for column in answer.description or ()]
    rows = fetched(answer)
    shown = itertools.islice(rows, limit) if limit else rows
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([cell(value) for value in row] for row in shown)
        more = next(rows, None) is not None
    else:
        found = list(shown)
        more = next(rows, None) is not None
        if session.json:
            session.out.document(
                {"columns": names, "rows": [[plain(value) for value in row] for row in found], "more": more}
            )
            return
        numbers = [name for at, name in enumerate(names) if found and all(_is_number(row[at]) for row in found)]
        if names:
            session.out.show(_table(names, found, numbers))
        session.out.note(f"{len(found):,} row{'' if len(found) == 1 else 's'}")
    if more:
        session.out.note(f"only the first {limit:,} rows; use --limit N for more, or tampu export for all")


def _table(names: list[str], rows: list[tuple[Any, ...]], numbers: list[str]) -> Any:
    unique = [f"{name}_{at}" if name in names[:at] else name for at, name in enumerate(names)]
    cells = [[_cell(value) for value in row] for row in rows]
    few = len(names) * 12 > output.width()
    return output.table(unique, cells, fold=unique if few or len(names) > 6 else _wide(unique, cells), right=numbers)


def _wide(names: list[str], rows: list[list[Text]]) -> list[str]:
    """Columns that may be cut: those with a value longer than an id."""
    return [name for at, name in enumerate(names) if max((row[at].cell_len for row in rows), default=0) > 36]


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> Text:
    from tampu.lake.export import plain

    if value is None:
        return text("·", "dim")
    if isinstance(value, bytes):
        try:
            return text(" ".join(value.decode().split())[:500])
        except UnicodeDecodeError:
            return text(f"{len(value):,} bytes", "dim")
    if isinstance(value, float):
        return text(f"{value:,.6g}" if abs(value) < 1e15 else f"{value:g}")
    cell = plain(value)
    return text(output.short(cell, 500) if isinstance(cell, dict | list) else " ".join(str(cell).split())[:500])


def _prompt(session: Session, ask: Questions, limit: int) -> None:
    """Read and run queries until Ctrl-D. Errors are printed."""
    with contextlib.suppress(ImportError):  # optional
        import readline  # noqa: F401 - gives input() its history and editing
    session.out.note('The lake, read-only. End a query with ";". \\d lists the tables, \\q quits.')
    lines: list[str] = []
    while True:
        try:
            line = input(_MORE if lines else _PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            lines = []
            print()
            continue
        if not lines and line.strip() in ("\\q", "exit", "quit", "exit;", "quit;"):
            return
        if not lines and line.strip() == "\\d":
            line = "SELECT table_schema || '.' || table_name AS \"table\" FROM information_schema.tables WHERE"
            line += " table_schema NOT IN ('main', 'information_schema') ORDER BY ALL;"
        lines.append(line)
        if not line.rstrip().endswith(";"):
            lines = lines if line.strip() or len(lines) > 1 else []
            continue
        query, lines = "\n".join(lines), []
        try:
            _answer(session, ask, query, limit)
        except tampu.TampuError as error:
            exits.print_error(exits.describe_error(error), json=False)


@command("export", PANEL)
def export(
    session: Session,
    what: Annotated[str, typer.Argument(metavar="TABLE|SQL", help="A table such as gold.failures, or a SELECT")],
    to: Annotated[str, option("--to", "A .parquet, .csv, .json or .jsonl file", metavar="FILE")],
    where: Annotated[str | None, option("--where", "SQL condition on the rows", metavar="SQL")] = None,
    lake: LakePath = None,
    option: LakeOptions = None,
    force: Annotated[bool, option("--force", "Replace an existing file")] = False,
) -> None:
    """Write a table of the lake, or the result of a query, to a file: completely or not at all.

    Bytes, such as payloads, are written unchanged to Parquet, and in base64 to the other formats.
    """
    found = lake_option.to_query(session, lake, option)
    from tampu.lake import export as lake_export

    with output.progress(f"exporting to {Path(to).name}", None) as advance:
        rows = lake_export.export(found, what, to, where=where, tenant=session.tenant, force=force, advance=advance)
    size = Path(to).stat().st_size
    session.out.answer({"file": to, "rows": rows, "bytes": size}, f"{rows:,} rows in {to}, {size:,} bytes")


@command("insights", PANEL)
def insights(
    session: Session,
    lake: LakePath = None,
    option: LakeOptions = None,
    days: Annotated[int, option("--days", "Number of days, up to the latest in the lake")] = 7,
    html: Annotated[str | None, option("--html", "Write the report to an HTML file", metavar="FILE")] = None,
    open_it: Annotated[bool, option("--open", "Open the report in the browser")] = False,
) -> None:
    """Report throughput, failures, slow tasks and forecasts from the lake. With --tenant, of that tenant only."""
    found = lake_option.to_query(session, lake, option)
    from tampu.lake.insights import gather

    gathered = gather(found, days=days, tenant=session.tenant)
    if html is not None or open_it:
        _report(session, gathered, html, open_it=open_it)
    elif session.json:
        session.out.document(gathered)
    else:
        from tampu.cli.lake.view import show

        show(session.out, gathered)


def _report(session: Session, gathered: Any, html: str | None, *, open_it: bool) -> None:
    import webbrowser

    from tampu.lake import report

    target = html or str(Path(tempfile.mkdtemp(prefix="tampu-")) / "insights.html")
    path = report.write(gathered, target)
    session.out.answer({"file": str(path), "bytes": path.stat().st_size}, f"report written to {path}")
    if open_it and not webbrowser.open(path.absolute().as_uri()):
        session.out.note("no browser could be opened")
