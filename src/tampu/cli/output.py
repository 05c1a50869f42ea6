"""Printing: JSON documents for scripts, tables for people, progress on standard error.

Text from messages is cleaned first, so that a payload cannot control the terminal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from tampu.cli import exits

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from tampu.model.message import Progress

STYLES = {
    "ready": "green", "delayed": "yellow", "leased": "cyan", "held": "magenta",
    "done": "dim", "dead": "red", "cancelled": "dim", "expired": "dim",
    "active": "green", "ended": "dim", "open": "green", "paused": "yellow", "draining": "yellow", "closed": "red",
    "waiting": "yellow", "parked": "red",
    "ok": "green", "warn": "yellow", "bad": "bold red",
}  # fmt: skip
_CONTROLS = {n: f"\\x{n:02x}" for n in (*range(0x20), *range(0x7F, 0xA0)) if chr(n) not in "\n\t"}
_PIPED_WIDTH = 160
_NARROWEST = 4


def clean(text: str) -> str:
    """Text without control characters or broken Unicode; both are shown as escapes."""
    return text.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)


class Output:
    def __init__(self, *, json: bool) -> None:
        self.json = json

    def document(self, value: Any) -> None:
        """Print one JSON document on one line."""
        line = memoryview(msgspec.json.encode(value, enc_hook=str) + b"\n")
        try:
            sys.stdout.flush()
            while line:  # an unbuffered stream may write only a part
                line = line[sys.stdout.buffer.write(line) :]
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            exit_quietly()

    @functools.cached_property
    def console(self) -> Console:
        return _console(stderr=False)

    def show(self, *things: RenderableType) -> None:
        """Print tables, panels or texts."""
        for thing in things:
            self.console.print(thing, crop=False)

    def line(self, text: str, style: str = "") -> None:
        """Print a line that is never cut or wrapped, so that it can be copied."""
        self.console.print(clean(text), style=style or None, soft_wrap=True)

    def answer(self, document: Any, line: str, style: str = "") -> None:
        """Print the document with --json, else the line."""
        if self.json:
            self.document(document)
        else:
            self.line(line, style)

    def rows(
        self, document: Any, columns: Sequence[str], rows: Iterable[Iterable[Any]], nothing: str = "", **layout: Any
    ) -> None:
        """Print the document with --json, else the rows as a table, or ``nothing`` if there are none."""
        if self.json:
            self.document(document)
        elif (made := list(rows)) or not nothing:
            self.show(table(columns, made, **layout))
        else:
            self.note(nothing)

    def note(self, text: str) -> None:
        """Print a remark for people on standard error; nothing with --json."""
        if not self.json:
            exits.print_line(clean(text))


def width() -> int:
    """Width of standard output in characters; large if it is not a terminal."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return _PIPED_WIDTH


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            exit_quietly()

    return Pipe(stderr=stderr, markup=False, highlight=False, emoji=False, width=None if stderr else width())


def exit_quietly() -> NoReturn:
    """Exit without any output: the reader of standard output is gone."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(exits.BROKEN_PIPE)


def exit_if_unread() -> None:
    """Exit if the reader of standard output is gone. For commands that wait: otherwise only a write would notice."""
    if not hasattr(select, "poll"):  # not on Windows
        return
    watch = select.poll()
    with contextlib.suppress(OSError, ValueError):  # not a real stream
        watch.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0)):
        exit_quietly()


def table(
    columns: Sequence[str],
    rows: Iterable[Iterable[Any]],
    *,
    fold: Sequence[str] = (),
    right: Sequence[str] = (),
    title: str | None = None,
) -> Table:
    """A table of texts and other values. Columns in ``fold`` are cut if there is little space, and left out if empty;
    others are never cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    whole = [[cell if isinstance(cell, Text) else text(cell) for cell in row] for row in rows]
    visible = [at for at, name in enumerate(columns) if name not in fold or any(row[at].plain for row in whole)]
    columns, cells = [columns[at] for at in visible], [[row[at] for at in visible] for row in whole]
    widths = [max([len(name), *(row[at].cell_len for row in cells)]) for at, name in enumerate(columns)]
    left = width() - sum(w for w, name in zip(widths, columns, strict=True) if name not in fold) - 2 * len(columns)
    foldable = sorted((w, at) for at, w in enumerate(widths) if columns[at] in fold)
    for done, (wanted, at) in enumerate(foldable):
        widths[at] = min(wanted, max(_NARROWEST, left // (len(foldable) - done)))
        left -= widths[at]
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, collapse_padding=True,
                 header_style="bold", width=sum(widths) + 2 * len(columns))  # fmt: skip
    for name, size in zip(columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if name in right else "left"
        made.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", width=size)
    for row in cells:
        made.add_row(*row)
    return made


def text(value: Any, style: str = "") -> Text:
    """A value as text; nothing for None."""
    from rich.text import Text

    return Text("" if value is None else clean(str(value)), style=style)


def word(value: str) -> Text:
    """A state or status in its color."""
    return text(value, STYLES.get(value, ""))


def count(value: int, style: str = "") -> Text:
    return text(f"{value:,}", style) if value else text("·", "dim")


def pretty(value: Any) -> Text:
    """A value as colored JSON on several lines."""
    from rich.highlighter import JSONHighlighter

    try:
        raw = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode("utf-8", "replace")
    except (TypeError, ValueError):
        raw = repr(value)
    return JSONHighlighter()(text(raw))


def short(value: Any, most: int = 200) -> str:
    """A value as JSON on one line, cut if it is long."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    try:
        raw = msgspec.json.encode(value, enc_hook=str).decode("utf-8", "replace")
    except (TypeError, ValueError):
        raw = repr(value)
    return clean(raw if len(raw) <= most else raw[: most - 1] + "…")


def span(seconds: float) -> str:
    """A duration for people: 0.2s, 45s, 1h30m, 3d."""
    if seconds < 1:
        return f"{seconds:.2g}s" if seconds >= 0.001 else "0s"
    left, parts = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts[:2])


def ago(at: datetime | None) -> str:
    """A time relative to now: ``3s ago``, ``in 5m``."""
    if at is None:
        return "-"
    seconds = (datetime.now(UTC) - at).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"


def share(progress: Progress | None) -> str:
    """How far a task is: ``50%, half``; nothing if it has not said."""
    if progress is None:
        return ""
    return f"{progress.done:.0%}" + (f", {progress.note}" if progress.note else "")


def clock(at: datetime) -> str:
    """A time in the local zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


@contextlib.contextmanager
def progress(doing: str, total: float | None, *, unit: str = "") -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, if that is a terminal. Call the function to advance it."""
    if not sys.stderr.isatty():
        yield lambda _steps: None
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn(),
        console=_console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(doing, total=total)
        yield lambda steps: bar.advance(task, steps)
