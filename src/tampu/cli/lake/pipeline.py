"""`tampu pipeline`: keeps the lake up to date with the journal, and maintains its tables."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

import tampu
from tampu.broker import journal_readers
from tampu.cli import exits, output, streams
from tampu.cli import parse as cli_parse
from tampu.cli.app import DryRun, command, group, option
from tampu.cli.lake import lake_option
from tampu.cli.lake.lake_option import PANEL, LakeOptions, LakePath
from tampu.cli.session import Session
from tampu.model.decoders import from_json

if TYPE_CHECKING:
    from tampu.lake.lineage import RunReport
    from tampu.lake.storage import Lake

pipeline = group("pipeline", PANEL, "Keep the lake, the journal and messages as tables")

Name = Annotated[str, option("--name", "Reader's name, if a store feeds several lakes", metavar="NAME")]
Conf = Annotated[list[str] | None, option("--conf", "Spark setting; repeatable", metavar="NAME=VALUE")]
Master = Annotated[str | None, option("--master", "Spark master (default: local[*])", metavar="URL")]
Remote = Annotated[str | None, option("--remote", "Spark Connect: sc://host:port", metavar="URL")]
Format = Annotated[str | None, option("--format", "How Spark reads tables: parquet, or delta (needs jars)")]


def _must_exist(session: Session) -> None:
    """Report a wrong url before Spark is started."""
    with session.open():
        pass


@command("run", PANEL, of=pipeline)
def run(
    session: Session,
    lake: LakePath = None,
    once: Annotated[bool, option("--once", "Update the lake once and exit")] = False,
    every: Annotated[str, option("--every", "Interval between updates", metavar="TIME")] = "2s",
    name: Name = "main",
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    option: LakeOptions = None,
    archive_after: Annotated[
        str | None, option("--archive-after", "Delete ended messages the lake has after this", metavar="TIME")
    ] = None,
    objectives: Annotated[
        Path | None, option("--objectives", "JSON file with the objectives of gold.slo", metavar="FILE")
    ] = None,
    skip_lost: Annotated[
        bool, option("--skip-lost", "Continue if transitions were trimmed before the lake read them")
    ] = False,
    no_checks: Annotated[bool, option("--no-checks", "Commit rows that break an expectation; only warn")] = False,
    metrics_port: Annotated[
        str | None, option("--metrics-port", "Prometheus metrics: 9464 or 0.0.0.0:9464", metavar="PORT")
    ] = None,
) -> None:
    """Update the lake from the journal, repeatedly until SIGTERM or Ctrl-C, or --once.

    If a run is killed, the next one repeats it exactly. Spark is started when there is something new.
    """
    from tampu.model.times import duration

    seconds = cli_parse.duration(every, "every")
    archive = cli_parse.optional_duration(archive_after, "archive_after")
    place = lake_option.to_write(session, lake, option)
    _must_exist(session)
    from tampu.cli.lake.run_pipeline import Runner
    from tampu.lake import own_tables
    from tampu.lake.run import Pipeline

    steps = StepPrinter(session)
    own = own_tables.load()
    work = Pipeline(
        session.store,
        place,
        name=name,
        archive_after_us=None if archive is None else duration(archive, "archive_after"),
        targets=None if objectives is None else _objectives(objectives),
        tables=own.tables,
        broken=own.failed,
        skip_lost=skip_lost,
        checks=not no_checks,
        on_step=steps,
    )
    settings = cli_parse.pairs(conf, "conf") or {}
    printer = ReportPrinter(session)
    runner = Runner(work, master, remote, settings, printer)
    if metrics_port is not None:
        port = runner.serve(metrics_port)
        session.out.note(f"metrics on port {port}")
    with steps:
        runner.once() if once else runner.forever(seconds)
    if printer.failed:
        raise typer.Exit(exits.FAILED)


def _objectives(path: Path) -> list[Any]:
    from tampu.lake.objectives import parse

    try:
        return list(parse(path.read_bytes()))
    except OSError as error:
        raise tampu.InvalidConfig(f"{path}: {error.strerror}", field="objectives") from None


class StepPrinter:
    """Shows the current step on standard error, if that is a terminal."""

    def __init__(self, session: Session) -> None:
        self._status: Any = None
        if sys.stderr.isatty() and not session.json:
            from rich.console import Console

            self._status = Console(stderr=True).status("looking for new transitions")

    def __call__(self, step: str) -> None:
        if self._status is not None:
            self._status.update(f"{step} ✓" if "." in step else step)

    def __enter__(self) -> None:
        if self._status is not None:
            self._status.start()

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()


class ReportPrinter:
    """Prints each run. Runs without news are printed once in a row."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last_had_news = True
        self.failed: dict[str, str] = {}
        """Users' tables that the last run could not build."""

    def __call__(self, report: RunReport) -> None:
        self.failed = report.failed
        if report.news or self._last_had_news or self._session.json:
            _print(self._session, report)
        self._last_had_news = report.news


def _print(session: Session, report: RunReport) -> None:
    if session.json:
        session.out.document({**msgspec.to_builtins(report), "transitions": report.transitions, "took": report.took})
    elif not report.news:
        session.out.line("nothing new")
    else:
        rows = " · ".join(f"{table} {count:,}" for table, count in report.rows.items() if not table.startswith("_"))
        rate = report.transitions / max(report.took, 1e-9)
        session.out.line(
            f"run {report.run}: {report.transitions:,} transitions in {output.span(report.took)} ({rate:,.0f}/s)",
            "bold",
        )
        session.out.line(f"  {rows}")


@command("status", PANEL, of=pipeline)
def status(session: Session, lake: LakePath = None, name: Name = "main", option: LakeOptions = None) -> None:
    """Show the tables of the lake, and how far it is behind the journal. Does not start Spark."""
    place = lake_option.to_write(session, lake, option)
    _must_exist(session)
    from tampu.lake.status import status as read_status

    found = read_status(session.store, place, name)
    if session.json:
        session.out.document(found)
        return
    if not found["registered"]:
        session.out.line(f"no run of {found['reader']} yet; try: {session.command_line('pipeline', 'run', '--once')}")
    session.out.line(
        f"{found['lake']}: {found['lag_messages']:,} transitions behind"
        + (f", the oldest {output.span(found['lag_seconds'])} old" if found["lag_messages"] else "")
    )
    columns = ("table", "rows", "files", "bytes", "version", "behind")
    cells = [[f"{row[c]:,}" if c != "table" else row[c] for c in columns] for row in found["tables"]]
    if cells:
        session.out.show(output.table(columns, cells, right=columns[1:]))
    last = found["last_run"]
    if last is not None:
        session.out.line(f"last run {last['run']}, ended {output.ago(last['finished'])}")
        for table, why in last["failed"].items():
            session.out.line(f"  {table} was not built: {why}")


@command("backfill", PANEL, of=pipeline)
def backfill(
    session: Session,
    first: Annotated[str, option("--from", "The first day (UTC): 2026-01-31", metavar="DAY")],
    last: Annotated[str | None, option("--to", "The last day (default: today)", metavar="DAY")] = None,
    table: Annotated[str, option("--table", "gold; or silver, which includes gold")] = "gold",
    lake: LakePath = None,
    name: Name = "main",
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    option: LakeOptions = None,
) -> None:
    """Recompute days from the bronze tables."""
    if table not in ("silver", "gold"):
        raise tampu.InvalidConfig(f"--table cannot be {table!r:.40}", field="table", hint="use silver or gold")
    start, end = _day(first, "from"), _day(last, "to") if last else datetime.now(UTC).date()
    if end < start:
        raise tampu.InvalidConfig("--to is before --from", field="to")
    place = lake_option.to_write(session, lake, option)
    _must_exist(session)
    from tampu.cli.lake.run_pipeline import translated, working_session
    from tampu.lake import own_tables
    from tampu.lake.run import Pipeline

    days = [start + timedelta(days=n) for n in range((end - start).days + 1)]
    own = own_tables.load()
    work = Pipeline(session.store, place, name=name, tables=own.tables, broken=own.failed)
    settings = cli_parse.pairs(conf, "conf") or {}
    with translated():
        report = work.backfill(lambda: working_session(master, remote, settings), days, layer=table)
    _print(session, report)
    if report.failed:
        raise typer.Exit(exits.FAILED)


def _day(given: str, field: str) -> date:
    try:
        return date.fromisoformat(given)
    except ValueError:
        raise tampu.InvalidConfig(f"{given!r:.40} is not a date", field=field, hint="write it as 2026-01-31") from None


@command("check", PANEL, of=pipeline)
def check(session: Session, lake: LakePath = None, option: LakeOptions = None) -> None:
    """Check what must hold of every table, over all rows. Does not start Spark."""
    found = lake_option.to_query(session, lake, option)
    _must_exist(session)
    from tampu.lake import expectations
    from tampu.stores.open_store import open_store

    with open_store(session.store) as store:
        first, _ = store.bounds()
    checked = expectations.check(found, first)
    broken = [one for one in checked if one.broken]
    if session.json:
        session.out.document({"checks": msgspec.to_builtins(checked)})
    else:
        for one in checked:
            if one.broken is None:
                session.out.line(f"{one.table}: {one.expectation}: not checked: {one.note}")
        for one in broken:
            session.out.line(f"{one.table}: {one.broken:,} break the expectation that {one.expectation}", "red")
        session.out.line(f"{len(checked)} expectations, {len(broken)} broken")
    if broken:
        raise typer.Exit(exits.FAILED)


@command("compact", PANEL, of=pipeline)
def compact(session: Session, lake: LakePath = None, option: LakeOptions = None) -> None:
    """Merge small files, so that queries stay fast. Runs and queries can go on meanwhile."""
    from tampu.lake import maintenance

    done = maintenance.compact(_must_have_tables(lake_option.to_write(session, lake, option)))
    if session.json:
        session.out.document({"tables": msgspec.to_builtins(done)})
    else:
        _print_tables(session, done, "nothing to compact")


@command("vacuum", PANEL, of=pipeline)
def vacuum(
    session: Session,
    retain: Annotated[str, option("--retain", "Keep old versions of the tables for this long", metavar="TIME")] = "7d",
    drop_before: Annotated[
        str | None, option("--drop-before", "Also delete rows of days before this one", metavar="DAY")
    ] = None,
    dry_run: DryRun = False,
    lake: LakePath = None,
    option: LakeOptions = None,
) -> None:
    """Delete files that no table uses any more, and old days with --drop-before."""
    from tampu.lake import maintenance

    hours = cli_parse.duration(retain, "retain") / 3600
    place = _must_have_tables(lake_option.to_write(session, lake, option))
    before = None if drop_before is None else _day(drop_before, "drop_before")
    dropped = None if before is None else maintenance.drop_days(place, before, dry_run=dry_run)
    removed = maintenance.vacuum(place, retain_hours=int(hours), dry_run=dry_run)
    if session.json:
        extra = {} if dropped is None else {"dropped": msgspec.to_builtins(dropped)}
        session.out.document({"tables": msgspec.to_builtins(removed), **extra})
        return
    verb = "would be deleted" if dry_run else "deleted"
    for care in dropped or []:
        if not care.table.startswith("_"):
            session.out.line(f"{care.table}: {care.rows:,} rows of days before {before} {verb}")
    if dropped and not dry_run:
        session.out.note(f"a vacuum removes their files when they are older than {retain}")
    _print_tables(session, removed, "" if dropped else "nothing to remove")


@command("erase", PANEL, of=pipeline)
def erase(
    session: Session,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Messages of the tenant")] = None,
    where: Annotated[
        str | None, option("--where", "And those for which this holds in bronze.payloads", metavar="SQL")
    ] = None,
    erasure_id: Annotated[
        str | None, option("--erasure", "And those that this erasure removed from the store", metavar="ID")
    ] = None,
    report: Annotated[Path | None, option("--report", "Where the report goes", metavar="FILE")] = None,
    verify: Annotated[Path | None, option("--verify", "Check a report: is everything gone?", metavar="FILE")] = None,
    yes: Annotated[bool, option("--yes", "-y", "Do not ask")] = False,
    dry_run: DryRun = False,
    lake: LakePath = None,
    option: LakeOptions = None,
) -> None:
    """Make messages anonymous in the lake: without id, payload, result and errors. Counts stay. Does not start Spark.

    The old files stay until a vacuum. Remove the messages from the store as well: tampu erase.
    """
    from tampu.lake import erasure
    from tampu.lake.query import checked_condition

    place = _must_have_tables(lake_option.to_write(session, lake, option))
    if verify is not None:
        try:
            left = erasure.verify(place, from_json(erasure.Erasure).decode(verify.read_bytes()))
        except (OSError, msgspec.DecodeError) as error:
            raise tampu.InvalidConfig(f"{verify}: {error}", field="verify") from None
        session.out.answer({"left": left}, "\n".join(left) or "nothing is left")
        if left:
            raise typer.Exit(exits.FAILED)
        return
    tenant = session.tenant or "default"
    chosen = list(ids or [])
    if erasure_id is not None:
        with session.open() as store:
            chosen += store.erasures.get(erasure_id).ids
    if where is not None:
        with lake_option.to_query(session, lake, option).ask(tenant=tenant) as ask:
            sql = f"SELECT DISTINCT id FROM bronze.payloads WHERE {checked_condition(where)}"  # noqa: S608 - checked
            chosen += [row["id"] for row in ask.rows(sql)]
    if dry_run:
        session.out.answer({"ids": chosen}, f"{len(chosen):,} messages")
        return
    if not yes:
        streams.confirm(f"make {len(chosen):,} messages anonymous for good?", "this cannot be undone")
    done = erasure.erase(place, tenant, chosen)
    if report is not None:
        report.write_bytes(msgspec.json.encode(done))
    if session.json:
        session.out.document(msgspec.to_builtins(done))
        return
    for one in done.tables:
        session.out.line(f"{one.table}: {one.rows:,} rows, {len(one.files):,} files rewritten")
    if done.backfill:
        session.out.line(f"your own tables: tampu pipeline backfill --from {done.backfill[0]} --to {done.backfill[-1]}")
    session.out.note("the old files are there until tampu pipeline vacuum --retain 1h")


def _must_have_tables(place: Lake) -> Lake:
    if not place.table("bronze.events").exists():
        raise tampu.NotFound(f"no lake in {place.uri}", field="lake", hint="create it with: tampu pipeline run")
    return place


def _print_tables(session: Session, done: list[Any], nothing: str) -> None:
    for care in done:
        session.out.line(f"{care.table}: {care.files:,} files" + (f" into {care.into:,}" if care.into else ""))
    if nothing and not done:
        session.out.line(nothing)


@command("forget", PANEL, of=pipeline)
def forget(session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="The reader's --name")]) -> None:
    """Remove a reader: the store keeps no journal for it any more. Its lake stays, but may miss transitions later."""
    from tampu.lake.state import reader_name
    from tampu.stores.open_store import open_existing

    with open_existing(session.store) as store:
        (removed,) = store.run([journal_readers.forgetting(reader_name(name))])
    if not removed:
        raise tampu.NotFound(f"no reader {name}", field="name", hint="tampu doctor lists them")
    session.out.answer({"forgotten": name}, f"reader {name} removed")


@command("shell", PANEL, of=pipeline)
def shell(
    session: Session,
    lake: LakePath = None,
    code: Annotated[str | None, option("--command", "-c", "Run this Python code and exit")] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    format: Format = None,
    option: LakeOptions = None,
) -> None:
    """Open a Python prompt with `spark`, and the tables as views: bronze_events, silver_messages and so on."""
    place = _must_have_tables(lake_option.to_write(session, lake, option, format))
    from tampu.cli.lake.run_pipeline import prompt, spark_session, translated
    from tampu.lake.storage.frames import read
    from tampu.lake.tables import payloads

    with translated():
        spark = spark_session(master, remote, cli_parse.pairs(conf, "conf") or {})
        names = []
        for table in place.present():
            names.append(table.replace(".", "_"))
            read(spark, place.table(table).open()).createOrReplaceTempView(names[-1])
        payloads.parsed(spark.table("bronze_messages")).createOrReplaceTempView("bronze_payloads")
    with translated(hint=None):
        prompt(spark, names, code)
