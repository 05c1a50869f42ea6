"""Charts of plain numbers: a line of blocks for the terminal, and SVG with labels in HTML for the report.

The drawings stretch with the page while their labels do not, so they are readable on a phone. Every drawing has a title
and a description for those who do not see it. Texts are escaped here, whoever they came from.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDE, _HIGH = 1000, 300
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_STEERING = {n: f"\\x{n:02x}" for n in (*range(0x20), *range(0x7F, 0xA0)) if chr(n) not in "\n\t"} | {
    n: f"\\u{n:04x}" for n in _BIDI
}
Number = float | int | None
Show = Callable[[Number], str]


# -- words and numbers


def escape(text: Any) -> str:
    """Any text as HTML that shows it: no markup, no control characters, no turned writing direction."""
    return html.escape(str(text).encode("utf-8", "backslashreplace").decode().translate(_STEERING))


def compact(value: float | int | None) -> str:
    """A number in a few characters: 950, 12.3k, 4.1M."""
    if value is None:
        return "-"
    if abs(value) < 1000:
        return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            scaled = value / size
            return f"{scaled:,.0f}{letter}" if abs(scaled) >= 99.95 else f"{scaled:.1f}{letter}"
    return f"{value:,.0f}"


def seconds(value: float | int | None) -> str:
    """A duration in a few characters: 3ms, 1.2s, 4m10s, 3h05m, 2d."""
    if value is None:
        return "-"
    if value < 0.0005:
        return "0s"
    if value < 0.9995:
        return f"{value * 1000:.0f}ms"
    if value < 59.95:
        return f"{value:.1f}s".replace(".0s", "s")
    left = round(value)
    for size, name, small, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if left >= size:
            rest = left % size // small
            return f"{left // size:,}{name}" + (f"{rest}{part}" if rest and left // size < 100 else "")
    return f"{left}s"


def percent(value: float | None) -> str:
    """A share: 99.95 %, 12 %, 0 %."""
    return "-" if value is None else f"{value * 100:.{4 if value > 0.9 else 2 if value < 0.1 else 3}g} %"


# -- the terminal


def sparkline(values: Sequence[Number], width: int) -> str:
    """One line of blocks; with less room the highest of neighbours is drawn, and what is unknown is a gap."""
    values = _fit(values, width)
    most = max((v for v in values if v is not None), default=0)
    return "".join(
        " " if v is None else _BLOCKS[0] if not most else _BLOCKS[min(7, math.ceil(v / most * 8) - 1 if v > 0 else 0)]
        for v in values
    )


def _fit(values: Sequence[Number], width: int) -> list[Number]:
    if len(values) <= width or width < 1:
        return list(values)
    each = math.ceil(len(values) / width)
    parts = [values[at : at + each] for at in range(0, len(values), each)]
    return [max((v for v in part if v is not None), default=None) for part in parts]


def bar(value: float, most: float, width: int) -> str:
    """A bar in eighths of a character."""
    eighths = round(width * 8 * value / most) if most > 0 and value > 0 else 0
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


# -- the report


class Curve(msgspec.Struct, frozen=True):
    name: str
    values: Sequence[Number]
    tone: str
    """A colour of the page: blue, green, amber, red, violet, grey."""
    kind: str = "line"
    """line, area or column (columns of one chart stand on each other)."""


def ceiling(most: float) -> float:
    """A round number that is not less, for the top of an axis."""
    if most <= 0 or not math.isfinite(most):
        return 1.0
    size: float = 10.0 ** math.floor(math.log10(most))
    return next((size * step for step in (1, 1.5, 2, 3, 4, 5, 8, 10) if size * step >= most * (1 - 1e-12)), most)


def over_time(
    name: str,
    title: str,
    about: str,
    at: Sequence[datetime],
    curves: Sequence[Curve],
    *,
    show: Show = compact,
    mark: tuple[float, str] | None = None,
) -> str:
    """A chart of values by time. ``mark`` draws a level with its word."""
    columns = [c for c in curves if c.kind == "column"]
    stacked = [sum(c.values[n] or 0 for c in columns) for n in range(len(at))]
    highest = [v for c in curves if c.kind != "column" for v in c.values if v is not None]
    top = ceiling(max([*stacked, *highest, *([mark[0]] if mark else [])], default=0))
    shapes = [_grid(), *_columns(columns, len(at), top)]
    shapes += [_curve(c, len(at), top) for c in curves if c.kind != "column"]
    if mark:
        y = _y(mark[0], top)
        shapes.append(f'<line class="mark" x1="0" x2="{_WIDE}" y1="{y}" y2="{y}"/>')
    shapes.extend(_hints(at, curves, show))
    marked = f'<span class="level" style="bottom:{mark[0] / top * 100:.2f}%">{escape(mark[1])}</span>' if mark else ""
    scale = "".join(f"<span>{escape(show(top * part / 4))}</span>" for part in (4, 3, 2, 1, 0))
    drawing = svg(name, title, about, _WIDE, _HIGH, shapes)
    return (
        f'<div class="chart"><div class="scale" aria-hidden="true">{scale}</div>'
        f'<div class="plot">{drawing}{marked}</div>'
        f'<div class="times" aria-hidden="true">{_times(at)}</div></div>{legend(curves)}'
    )


def svg(name: str, title: str, about: str, wide: int, high: int, shapes: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-labelledby="{name}-t {name}-d" viewBox="0 0 {wide} {high}" preserveAspectRatio="none">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(about)}</desc>{"".join(shapes)}</svg>'
    )


def legend(curves: Sequence[Curve]) -> str:
    entries = "".join(f'<li class="{c.tone}"><i></i>{escape(c.name)}</li>' for c in curves)
    return f'<ul class="legend">{entries}</ul>'


def _grid() -> str:
    lines = "".join(f'<line x1="0" x2="{_WIDE}" y1="{_HIGH * n // 4}" y2="{_HIGH * n // 4}"/>' for n in range(5))
    return f'<g class="grid">{lines}</g>'


def _y(value: float, top: float) -> str:
    return f"{_HIGH * (1 - min(1.0, max(0.0, value / top))):.1f}"


def _x(n: int, count: int) -> str:
    """The middle of the n-th step."""
    return f"{(n + 0.5) * _WIDE / count:.1f}"


def _columns(curves: Sequence[Curve], count: int, top: float) -> list[str]:
    floor = [0.0] * count
    shapes = []
    wide = _WIDE / count if count else 0
    gap = max(min(2.0, wide * 0.15), wide / 2 - 20)
    for curve in curves:
        path = []
        for n, value in enumerate(curve.values):
            if value:
                low, high = _y(floor[n], top), _y(floor[n] + value, top)
                path.append(f"M{n * wide + gap:.1f} {low}V{high}h{wide - 2 * gap:.1f}V{low}z")
                floor[n] += value
        shapes.append(f'<path class="fill {curve.tone}" d="{"".join(path)}"/>')
    return shapes


def _curve(curve: Curve, count: int, top: float) -> str:
    """The line, broken where nothing is known; a value between two gaps is a dash of its own."""
    runs: list[list[tuple[str, str]]] = [[]]
    for n, value in enumerate(curve.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((_x(n, count), _y(value, top)))
    path, area = [], []
    for run in filter(None, runs):
        dash = min(20.0, 0.4 * _WIDE / count)
        points = run if len(run) > 1 else [(f"{float(run[0][0]) + by:.1f}", run[0][1]) for by in (-dash, dash)]
        line = "L".join(f"{x} {y}" for x, y in points)
        path.append(f"M{line}")
        area.append(f"M{points[0][0]} {_HIGH}L{line}L{points[-1][0]} {_HIGH}z")
    under = f'<path class="under {curve.tone}" d="{"".join(area)}"/>' if curve.kind == "area" else ""
    return f'{under}<path class="line {curve.tone}" d="{"".join(path)}"/>'


def _hints(at: Sequence[datetime], curves: Sequence[Curve], show: Show) -> list[str]:
    """What the pointer shows over each step."""
    wide = _WIDE / len(at) if at else 0
    shapes = []
    for n, moment in enumerate(at):
        values = "\n".join(f"{c.name}: {show(c.values[n])}" for c in curves)
        shapes.append(
            f'<rect class="hint" x="{n * wide:.1f}" width="{wide:.1f}" height="{_HIGH}"><title>'
            f"{moment:%a %d %b %H:%M}\n{escape(values)}</title></rect>"
        )
    return shapes


def _times(at: Sequence[datetime]) -> str:
    if not at:
        return ""
    days = (at[-1] - at[0]).total_seconds() > 2 * 86_400 or not any(moment.hour or moment.minute for moment in at)
    shown = sorted({round(n * (len(at) - 1) / 4) for n in range(5)})
    return "".join(f"<span>{at[n]:%d %b}</span>" if days else f"<span>{at[n]:%H:%M}</span>" for n in shown)


def tiny(values: Sequence[Number], name: str) -> str:
    """A line for a table's cell."""
    values = _fit(values, 60)
    if len(values) < 2:
        return ""
    top = ceiling(max((v for v in values if v is not None), default=0))
    points = " ".join(f"{n * 100 / (len(values) - 1):.1f},{20 - 18 * (v or 0) / top:.1f}" for n, v in enumerate(values))
    return (
        f'<svg class="tiny" role="img" aria-label="{escape(name)}" viewBox="0 0 100 21" preserveAspectRatio="none">'
        f'<polyline points="{points}"/></svg>'
    )
