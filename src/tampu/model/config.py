"""Queue settings. A field that is None inherits: from the queue's scopes, the longest first, then from the tenant's
defaults (``*``), then the built-in value.

A scope is a dotted beginning of queue names: settings of ``shop.*`` are for ``shop.emails`` and ``shop.mail.daily``.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from tampu.model.decoders import convert, from_json
from tampu.model.errors import InvalidConfig
from tampu.model.times import SECOND, Duration, duration

Ordering = Literal["fifo", "priority", "deadline", "fair"]
GroupBy = Literal["group", "type"]
OnDeadline = Literal["keep", "expire", "dead"]
OnInvalid = Literal["refuse", "dead"]
ConsumerMode = Literal["shared", "broadcast"]
Status = Literal["open", "paused", "draining", "closed"]
DAY = 86_400.0
S = TypeVar("S")
DEFAULTS = "*"
"""The name of the settings that all queues of a tenant inherit."""


SYSTEM = "_tampu."
"""Reserved: no user's queue has a name that begins with it."""


WEBHOOKS = f"{SYSTEM}webhooks"
"""The queue of deliveries of webhooks."""


def is_pattern(name: str) -> bool:
    """True if settings of this name are for several queues: a scope, or the defaults."""
    return name.endswith("*")


def parents(name: str) -> list[str]:
    """From where a queue or scope inherits: the scopes it is in, the longest first, then the defaults.

    The queue of a subscription, such as ``news@billing``, inherits from ``news`` first.
    """
    if name == DEFAULTS:
        return []
    base, of_subscription, _ = name.partition("@")
    if of_subscription:
        return [base, *parents(base)]
    parts = name.removesuffix(".*").split(".")
    return [*(".".join(parts[:n]) + ".*" for n in range(len(parts) - 1, 0, -1)), DEFAULTS]


def covers(pattern: str, queue: str) -> bool:
    """True if the queue is in the scope, or is the queue of this name; ``*`` covers all."""
    if pattern == DEFAULTS:
        return True
    return queue.startswith(pattern[:-1]) if is_pattern(pattern) else queue == pattern


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a failed message waits: from ``base`` up to ``cap`` seconds by ``kind``, or a list of ``delays``."""

    kind: Literal["fixed", "linear", "exponential", "list"] = "exponential"
    base: float = 1.0
    cap: float = 300.0
    jitter: Literal["none", "full", "equal"] = "equal"
    delays: tuple[float, ...] = ()

    def micros(self, attempt: int) -> int:
        """The wait after failed attempt number ``attempt``, before jitter."""
        if self.kind == "list":
            return round(self.delays[min(attempt, len(self.delays)) - 1] * SECOND)
        if self.kind == "fixed":
            seconds = self.base
        elif self.kind == "linear":
            seconds = self.base * attempt
        else:
            seconds = self.base * 2.0 ** min(attempt - 1, 60)
        return round(min(seconds, self.cap) * SECOND)

    def table(self, attempts: int) -> tuple[int, ...]:
        """The waits after attempts 1, 2, …; the last one repeats."""
        return tuple(self.micros(n) for n in range(1, min(max(attempts, 1), 64) + 1))

    def spread(self, chance: float) -> float:
        """The factor that jitter applies to a wait, for a random ``chance`` in 0..1."""
        return {"none": 1.0, "full": chance, "equal": 0.5 + chance / 2}[self.jitter]


def _backoff(kind: Literal["fixed", "linear", "exponential"], base: Duration, cap: Duration, jitter: Any) -> Backoff:
    made = Backoff(
        kind=kind,
        base=duration(base, "base", error=InvalidConfig) / SECOND,
        cap=duration(cap, "cap", error=InvalidConfig) / SECOND,
        jitter=jitter,
    )
    return checked_backoff(made)


def fixed(base: Duration = 1, *, jitter: str = "equal") -> Backoff:
    """The same wait after each failure."""
    return _backoff("fixed", base, base, jitter)


def linear(base: Duration = 1, *, cap: Duration = 300, jitter: str = "equal") -> Backoff:
    """``base`` times the attempt number."""
    return _backoff("linear", base, cap, jitter)


def exponential(base: Duration = 1, *, cap: Duration = 300, jitter: str = "equal") -> Backoff:
    """``base``, doubled with each attempt."""
    return _backoff("exponential", base, cap, jitter)


def checked_backoff(value: Any) -> Backoff:
    """A `Backoff` from what users pass: a `Backoff`, a list of delays, a kind, one delay, or a mapping."""
    if isinstance(value, Backoff):
        made = value
    elif isinstance(value, list | tuple):
        seconds = tuple(duration(v, "backoff", error=InvalidConfig) / SECOND for v in value)
        made = Backoff(kind="list", delays=seconds, jitter="none")
    elif isinstance(value, str) and not value.strip()[:1].isdigit():
        made = _convert({"kind": value}, Backoff, "backoff")
    elif isinstance(value, dict):
        times = {
            name: duration(value[name], f"backoff {name}", error=InvalidConfig) / SECOND
            for name in ("base", "cap")
            if isinstance(value.get(name), str)
        }
        made = _convert({**value, **times}, Backoff, "backoff")
    else:
        made = Backoff(kind="fixed", base=duration(value, "backoff", error=InvalidConfig) / SECOND, jitter="none")
    made = _convert(msgspec.to_builtins(made), Backoff, "backoff")
    if made.kind == "list" and not made.delays:
        raise InvalidConfig("backoff is an empty list", field="backoff", hint="give at least one delay")
    if any(not 0 <= d <= 100 * 366 * DAY for d in (made.base, made.cap, *made.delays)):
        raise InvalidConfig("backoff delays must be between 0 and a hundred years", field="backoff")
    return made


class QueueConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings of one queue. Durations are seconds; `store.queues.put` takes timedelta too."""

    status: Status | None = None
    """``open``, ``paused`` (no delivery), ``draining`` (no publish) or ``closed`` (neither)."""
    ordering: Ordering | None = None
    ageing: float | None = None
    """Seconds of waiting that are worth one step of priority; 0 turns ageing off."""
    group_order: bool | None = None
    """Deliver the messages of a group one at a time, in publish order."""
    group_concurrency: int | None = None
    """Most messages of one group leased at once, over all workers; 0 is no limit."""
    group_rate: float | None = None
    """Most claims per second of one group, over all workers; 0 is no limit. Also taken as ``100/s``, ``10/m``."""
    group_burst: int | None = None
    """How many claims of one group may come at once after a quiet time; 0 is one second's worth, at least 1."""
    group_by: GroupBy | None = None
    """With ``type``, the group of a message without one is its type."""
    max_attempts: int | None = None
    lease: float | None = None
    backoff: Backoff | None = None
    ttl: float | None = None
    """Messages expire this long after publish; 0 is never."""
    on_deadline: OnDeadline | None = None
    """What happens to a message that still waits at its deadline: nothing, it expires, or it becomes dead."""
    consumer_mode: ConsumerMode | None = None
    """``shared``: each message goes to one of the workers. ``broadcast``: each subscription gets it."""
    on_invalid: OnInvalid | None = None
    """What happens to a message whose payload does not match a schema: it is refused, or stored as dead."""
    result_ttl: float | None = None
    retention: float | None = None
    """How long ended messages are kept. Dead ones are kept until they are replayed or purged, see below."""
    dead_retention: float | None = None
    """How long dead letters are kept; 0 is until they are replayed or purged."""
    max_dead: int | None = None
    """Most dead letters; the oldest are removed first. 0 is no limit."""
    dead_letter_to: str | None = None
    """A queue that gets a copy of each dead letter, for workers; empty: none."""
    idempotency_window: float | None = None
    max_depth: int | None = None
    """Most messages that have not ended; 0 is no limit."""
    max_in_flight: int | None = None
    """Most messages leased at once, over all workers; 0 is no limit."""
    rate: float | None = None
    """Most claims per second, over all workers; 0 is no limit. Also taken as ``100/s``, ``10/m``, ``500/h``."""
    burst: int | None = None
    """How many claims may come at once after a quiet time; at least 1."""
    max_payload: int | None = None
    """Most bytes of an encoded payload."""


BUILT_IN = QueueConfig(
    status="open",
    ordering="fifo",
    ageing=0.0,
    group_order=False,
    group_concurrency=0,
    group_rate=0.0,
    group_burst=0,
    group_by="group",
    max_attempts=5,
    lease=30.0,
    backoff=Backoff(),
    ttl=0.0,
    on_deadline="keep",
    consumer_mode="shared",
    on_invalid="refuse",
    result_ttl=DAY,
    retention=DAY,
    dead_retention=0.0,
    max_dead=0,
    dead_letter_to="",
    idempotency_window=DAY,
    max_depth=0,
    max_in_flight=0,
    rate=0.0,
    burst=0,
    max_payload=256 * 1024,
)

FIELDS = tuple(QueueConfig.__struct_fields__)
SYSTEM_SETTINGS = {WEBHOOKS: QueueConfig(max_attempts=10, lease=60.0, group_concurrency=2)}
"""Of tampu's own queues. They inherit nothing from a tenant's settings."""
read_config = from_json(QueueConfig).decode
DURATIONS = frozenset({"ageing", "lease", "ttl", "result_ttl", "retention", "dead_retention", "idempotency_window"})
_PLACE = re.compile(r"`\$\.(\w+)")
_RATES = frozenset({"rate", "group_rate"})
_BOUNDS = {
    "group_concurrency": (0, 10_000), "group_rate": (0, 10_000), "group_burst": (0, 10_000), "max_attempts": (1, 1000),
    "max_depth": (0, 10**15), "max_in_flight": (0, 10**9), "rate": (0, 10**9), "burst": (0, 10**9),
    "max_payload": (1, 1 << 30), "max_dead": (0, 10**15),
}  # fmt: skip


def rate(text: str, field: str) -> float:
    """Claims a second, from ``100/s``, ``10/m`` or ``500/h``."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?/ ?([smh])", text)
    if found is None:
        raise InvalidConfig(f"{text!r:.60} is not a rate", field=field, hint="such as 100/s, 10/m, 500/h; or a number")
    return float(found[1]) / {"s": 1, "m": 60, "h": 3600}[found[2]]


def inherit(*layers: QueueConfig | None) -> QueueConfig:
    """The first value that is not None, layer by layer."""
    values: dict[str, Any] = {}
    for layer in layers:
        if layer is not None:
            for name in FIELDS:
                if values.get(name) is None:
                    values[name] = getattr(layer, name)
    return QueueConfig(**values)


def change(base: QueueConfig, changes: dict[str, Any]) -> QueueConfig:
    """``base`` with the changes of a user, checked; None inherits again."""
    values: dict[str, Any] = {name: getattr(base, name) for name in FIELDS}
    for name, value in changes.items():
        if name not in values:
            raise InvalidConfig(f"no such setting: {name}", field=name, hint=f"settings are {', '.join(FIELDS)}")
        if value is None:
            values[name] = None
        elif name == "backoff":
            values[name] = checked_backoff(value)
        elif name in DURATIONS:
            values[name] = duration(value, name, zero=name != "lease", error=InvalidConfig) / SECOND
        else:
            if name in _RATES and isinstance(value, str):
                value = rate(value, name)  # noqa: PLW2901 - as the number it stands for
            if isinstance(value, bool) is not (name == "group_order"):
                raise InvalidConfig(f"{name} cannot be {value!r}", field=name)
            bounds = _BOUNDS.get(name)
            if bounds is not None and not (isinstance(value, int | float) and bounds[0] <= value <= bounds[1]):
                takes = f"{_takes(QueueConfig, name)} between {bounds[0]} and {bounds[1]:,}"
                raise InvalidConfig(f"{name} must be {takes}", field=name)
            values[name] = value
    try:
        plain = {k: msgspec.to_builtins(v) for k, v in values.items() if v is not None}
    except TypeError as error:
        raise InvalidConfig(str(error)) from None
    return _convert(plain, QueueConfig, None)


def _convert(value: Any, kind: type[S], field: str | None) -> S:
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        if place is None:
            raise InvalidConfig(str(error), field=field) from None
        whole = f"{field}: {place[1]}" if field else place[1]
        raise InvalidConfig(f"{whole} must be {_takes(kind, place[1])}", field=field or place[1]) from None


def _takes(kind: type, name: str) -> str:
    """The values of a field, in words for an error."""
    hint = get_type_hints(kind)[name]
    if get_origin(hint) is tuple:
        return "a list of numbers"
    kinds = [one for one in get_args(hint) or [hint] if one is not type(None)]
    if get_origin(kinds[0]) is Literal:
        kinds = list(get_args(kinds[0]))
    if isinstance(kinds[0], str):
        return f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kinds[0], f"a {name}")
