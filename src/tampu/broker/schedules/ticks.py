"""When a schedule fires: cron expressions in a time zone, intervals, jitter, and missed ticks.

Everything is computed from the stored schedule, so all processes compute the same ticks. Nothing here reads a clock or
a store.
"""

from __future__ import annotations

import functools
import hashlib
import re
import zoneinfo
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

import msgspec

from tampu.broker import validate
from tampu.model.errors import InvalidMessage
from tampu.model.times import LATEST, SECOND, instant, moment

if TYPE_CHECKING:
    from cronsim import CronSim

GRACE_US = 60 * SECOND
"""The newest tick counts as on time, not as missed, if it is at most this late."""
SHORTEST_US = SECOND
MOST_MISSED = 1000
_ALL = re.compile(r"all\((\d{1,4})\)\Z")
_HOUR_US = 3600 * SECOND
_GROWTH = 24
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LAST_YEAR = moment(LATEST).year - 1


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the ticks are: either ``cron`` or ``every_us`` is set."""

    cron: str | None = None
    every_us: int | None = None
    tz: str = "UTC"
    anchor_us: int = 0
    """The time from which intervals are counted."""
    start_us: int | None = None
    end_us: int | None = None


def checked_cron(expression: str, tz: str, now_us: int) -> str:
    """The expression in its normal form. Raises `InvalidMessage` if it is wrong or never fires."""
    if not isinstance(expression, str) or not 0 < len(expression) <= 200:
        raise InvalidMessage("cron must be a text of 1 to 200 characters", field="cron", hint="such as */5 * * * *")
    wanted = _ALIASES.get(expression.strip().lower(), " ".join(expression.split()))
    if len(wanted.split(" ")) != 5:
        raise InvalidMessage(
            f"cron {expression!r:.80} must have five fields",
            field="cron",
            hint="minute hour day-of-month month day-of-week; for seconds use every",
        )
    from cronsim import CronSimError

    try:
        found = following(Timing(cron=wanted, tz=tz), now_us)
    except CronSimError as error:
        raise InvalidMessage(
            f"cron {expression!r:.80} is not a cron expression: {error}", field="cron", hint="such as */5 * * * *"
        ) from None
    if found is None:
        raise InvalidMessage(f"cron {expression!r:.80} never fires", field="cron")
    return wanted


def checked_zone(name: str) -> str:
    """The name, if it is a known time zone."""
    zone(validate.text(name, "tz", 100))
    return name


@functools.lru_cache(256)
def zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder of zones
        raise InvalidMessage(
            f"no time zone {name!r:.110}", field="tz", hint="a name such as Europe/Rome or UTC"
        ) from None


def checked_missed(value: str) -> str:
    """``skip``, ``once`` or ``all(n)``; ``all`` stands for the largest n."""
    wanted = f"all({MOST_MISSED})" if value == "all" else value
    if not isinstance(wanted, str) or (wanted not in ("skip", "once") and not 1 <= most_missed(wanted) <= MOST_MISSED):
        raise InvalidMessage(
            f"missed cannot be {value!r:.60}",
            field="missed",
            hint=f"skip, once, or all(n) with n from 1 to {MOST_MISSED}",
        )
    return wanted


def most_missed(missed: str) -> int:
    """The n of ``all(n)``; 0 for other values."""
    found = _ALL.match(missed)
    return int(found[1]) if found else 0


def following(timing: Timing, after_us: int) -> int | None:
    """The first tick after a time."""
    after_us = max(after_us, (timing.start_us or 0) - 1)
    if timing.every_us is not None:
        steps = max(0, (after_us - timing.anchor_us) // timing.every_us + 1)
        found: int | None = timing.anchor_us + steps * timing.every_us
    else:
        found = next(_Ticks(timing, after_us), None)
    last = LATEST if timing.end_us is None else timing.end_us
    return None if found is None or found > last else found


def latest(timing: Timing, after_us: int, until_us: int, most: int) -> list[int]:
    """The last ``most`` ticks after ``after_us`` and up to ``until_us``, in order."""
    after_us = max(after_us, (timing.start_us or 0) - 1)
    if timing.end_us is not None:
        until_us = min(until_us, timing.end_us)
    if timing.every_us is not None:
        last = (until_us - timing.anchor_us) // timing.every_us
        first = max(0, (after_us - timing.anchor_us) // timing.every_us + 1, last - most + 1)
        return [timing.anchor_us + step * timing.every_us for step in range(first, last + 1)]
    # A year of minutes is half a million ticks: look back only as far as it takes to find enough.
    span = _HOUR_US
    while True:
        since = max(after_us, until_us - span)
        found = _between(timing, since, until_us)
        if len(found) >= most or since == after_us:
            return found[-most:]
        span *= _GROWTH


def _between(timing: Timing, after_us: int, until_us: int) -> list[int]:
    found = []
    for tick in _Ticks(timing, after_us):
        if tick > until_us:
            break
        found.append(tick)
    return found


class _Ticks:
    """The ticks of a cron expression after a time, in order."""

    def __init__(self, timing: Timing, after_us: int) -> None:
        from cronsim import CronSim

        assert timing.cron is not None
        self._last = after_us
        self._tick: CronSim = CronSim(timing.cron, moment(after_us).astimezone(zone(timing.tz)))

    def __iter__(self) -> _Ticks:
        return self

    def __next__(self) -> int:
        while True:
            found = next(self._tick)
            if found.year > _LAST_YEAR:
                raise StopIteration
            # In an hour that a change of the clocks repeats, CronSim begins with times that have passed.
            tick = instant(found.astimezone(UTC), "tick")
            if tick > self._last:
                self._last = tick
                return tick


def due(timing: Timing, jitter_us: int, seed: str, tick_us: int) -> int:
    """When to fire a tick: later by its own share of the jitter, but never later than the next tick."""
    if not jitter_us:
        return tick_us
    after = following(timing, tick_us)
    room = jitter_us if after is None else min(jitter_us, after - tick_us)
    digest = hashlib.blake2b(f"{seed}/{tick_us}".encode(), digest_size=8).digest()
    return tick_us + (int.from_bytes(digest) * room >> 64)


class Decision(msgspec.Struct, frozen=True):
    """Which ticks up to ``after_us`` fire."""

    fire: tuple[int, ...]
    after_us: int


def decide(
    timing: Timing, *, jitter_us: int, seed: str, missed: str, after_us: int, left: int | None, now_us: int
) -> Decision | None:
    """Decide which of the due ticks after ``after_us`` fire now; None if none is due.

    ``left`` is how many the limit of the schedule still allows.
    """
    most = max(1, most_missed(missed))
    ticks = latest(timing, after_us, now_us, most + 1)
    if ticks and due(timing, jitter_us, seed, ticks[-1]) > now_us:
        ticks.pop()
    if not ticks:
        return None
    newest = ticks[-1]
    fire = ticks[-most:]
    if missed == "skip" and now_us - due(timing, jitter_us, seed, newest) > GRACE_US:
        fire = []
    return Decision(tuple(fire if left is None else fire[:left]), newest)
