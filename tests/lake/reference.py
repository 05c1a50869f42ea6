"""Silver and gold a second time, in plain Python from the definitions of the tables, as slow and simple as can be.

Nothing is shared with the pipeline. Events and messages are dicts with the columns of bronze; so are the answers.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KNOWN = (
    "publish", "adopt", "replace", "claim", "ack", "nack", "reject", "release", "reap", "promote", "free", "expire",
    "cancel", "ask_cancel", "replay", "purge",
)  # fmt: skip

UNSEEN: Row = dict.fromkeys(("deliveries", "wait", "run", "total"))


def _seconds(later: datetime | None, sooner: datetime | None) -> float | None:
    return None if later is None or sooner is None else (later - sooner).total_seconds()


def _run(claim: Row, end: Row) -> timedelta:
    """How long a delivery took: to its end or, when its lease ran out, to the end of that."""
    found = re.fullmatch(r"lease_until=(\d+)", end["detail"] or "") if end["verb"] in ("reap", "cancel") else None
    lease_until = end["at"] if found is None else EPOCH + timedelta(microseconds=int(found[1]))
    run: timedelta = min(end["at"], lease_until) - claim["at"]
    return max(run, timedelta())


class Life:
    """One message from its publish on, event by event."""

    def __init__(self) -> None:
        self.created: datetime | None = None
        self.type: str | None = None
        self.state: str | None = None
        self.ready_since: datetime | None = None
        self.claim: Row | None = None
        self.deliveries: list[Row] = []
        self.stays: list[Row] = []
        self.first_claimed: datetime | None = None
        self.claims = self.replays = 0
        self.worker: str | None = None
        self.failure: Row = {"error": None, "fingerprint": None}
        self.waits = self.runs = timedelta()
        self.end: Row | None = None
        """The event that ended it, unless it lives again."""
        self.came_ended = False
        """It came from another store, and nothing has happened since."""

    def tell(self, e: Row) -> None:
        verb = e["verb"]
        self.type = e["type"] or self.type
        if verb in ("replace", "ask_cancel") or (verb == "adopt" and e["state"] == self.state):
            return
        self.came_ended = verb == "adopt" and self.state is None
        claimed_from = self.ready_since
        if self.ready_since is not None:
            common = {"id": e["id"], "tenant": e["tenant"], "queue": e["queue"]}
            self.stays.append(common | {"ready_at": self.ready_since, "left_at": e["at"], "day": e["at"].date()})
        self.ready_since = e["at"] if e["state"] == "ready" else None
        if verb == "publish":
            self.created = e["at"]
        if verb == "replay":
            self.replays += 1
            self.end = None
        if verb in ("nack", "reject"):
            self.failure = {"error": e["detail"], "fingerprint": e["fingerprint"]}
        if verb == "reap":
            self.failure = {"error": None, "fingerprint": None}
        if verb in ("ack", "nack", "reject", "release", "reap", "cancel") and self.claim is not None:
            self._delivered(e)
        self.claim = None
        if verb == "claim":
            self.claims += 1
            self.first_claimed = self.first_claimed or e["at"]
            self.worker = e["worker"]
            self.claim = e | {"ready_at": claimed_from}
            if claimed_from:
                self.waits += e["at"] - claimed_from
        if e["state"] in ("done", "dead", "cancelled", "expired"):
            self.end = e
        self.state = e["state"]

    def _delivered(self, e: Row) -> None:
        assert self.claim is not None
        claim, failed = self.claim, e["verb"] in ("nack", "reject")
        run = _run(claim, e)
        self.runs += run
        self.deliveries.append(
            {
                "id": e["id"], "queue": e["queue"], "type": self.type, "attempt": claim["attempt"],
                "ready_at": claim["ready_at"], "claimed_at": claim["at"], "ended_at": e["at"],
                "wait": _seconds(claim["at"], claim["ready_at"]), "run": run.total_seconds(),
                "worker": claim["worker"], "outcome": e["verb"],
                "error": e["detail"] if failed else None, "fingerprint": e["fingerprint"] if failed else None,
                "day": e["at"].date(), "tenant": e["tenant"],
            }
        )  # fmt: skip

    def sums(self, created: datetime | None) -> Row:
        assert self.end is not None
        waits, runs = self.waits.total_seconds(), self.runs.total_seconds()
        return {"deliveries": self.claims, "wait": waits, "run": runs, "total": _seconds(self.end["at"], created)}

    def row(self, body: Row) -> Row:
        """As it ended; ``body`` is its row of bronze.messages, if there is one."""
        assert self.end is not None
        e = self.end
        created = self.created or body.get("created_at")
        sizes = [None if body.get(k) is None else len(body[k]) for k in ("payload", "result")]
        if body.get("result") is not None:
            sizes[1] = len(body["result"].encode())
        lineage = {k: body.get(k) for k in ("correlation_id", "causation_id", "parent_id", "group", "source")}
        return {
            "id": e["id"], "queue": e["queue"], "type": self.type or body.get("type"), "state": e["state"],
            "created_at": created, "first_claimed_at": self.first_claimed, "ended_at": e["at"],
            "attempts": e["attempt"], "replays": self.replays,
            **(UNSEEN if self.came_ended else self.sums(created)), "worker": self.worker, **self.failure, **lineage,
            "payload_bytes": sizes[0], "result_bytes": sizes[1], "day": e["at"].date(), "tenant": e["tenant"],
        }  # fmt: skip


def lives(events: Iterable[Row]) -> list[Life]:
    found: list[Life] = []
    current: dict[tuple[str, str], Life] = {}
    for e in sorted(events, key=lambda e: (e["partition"], e["offset"])):
        if e["verb"] not in KNOWN:
            continue
        who = (e["tenant"], e["id"])
        if e["verb"] == "publish" or who not in current:
            current[who] = Life()
            found.append(current[who])
        current[who].tell(e)
    return found


def silver(events: Iterable[Row], messages: Iterable[Row]) -> dict[str, list[Row]]:
    lived = lives(events)
    bodies = {(m["tenant"], m["id"], m["ended_partition"], m["ended_offset"]): m for m in messages}

    def body(end: Row) -> Row:
        return bodies.get((end["tenant"], end["id"], end["partition"], end["offset"]), {})

    return {
        "silver.attempts": [delivery for life in lived for delivery in life.deliveries],
        "silver.messages": [life.row(body(life.end)) for life in lived if life.end],
        "stays": [stay for life in lived for stay in life.stays],
    }


def percentile(values: list[float], p: float) -> float | None:
    """The least value that this share of all is not above."""
    ranked = sorted(values)
    return ranked[max(math.ceil(round(len(ranked) * p, 6)), 1) - 1] if ranked else None


def _percentiles(what: str, values: Iterable[float | None]) -> Row:
    known = [v for v in values if v is not None]
    return {f"{what}_p{p}": percentile(known, p / 100) for p in (50, 95, 99)}


def _grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def _count(rows: Iterable[Row], **wanted: Any) -> int:
    return sum(all(row[k] in (v if isinstance(v, tuple) else (v,)) for k, v in wanted.items()) for row in rows)


FAILED = ("nack", "reject", "reap")


def _ends(events: Iterable[Row]) -> Row:
    here = [e for e in events if e["verb"] != "adopt"]
    return {state: _count(here, state=state) for state in ("done", "dead", "cancelled", "expired")}


def gold(events: list[Row], messages: list[Row], objectives: Iterable[Row] = ()) -> dict[str, list[Row]]:
    """All days at once; objectives are the user's, as dicts."""
    events = [e | {"day": e["at"].date()} for e in events if e["verb"] in KNOWN]
    known = silver(events, messages)
    attempts = known["silver.attempts"]
    ended = [m for m in known["silver.messages"] if m["deliveries"] is not None]
    minutes = queue_minutes(events, attempts)
    return {
        "gold.queue_minutes": minutes,
        "gold.queue_hours": rolled_up(minutes, attempts, "hour"),
        "gold.queue_days": rolled_up(minutes, attempts, "day"),
        "gold.failures": failures(events, attempts),
        "gold.tenant_days": tenant_days(events, attempts, ended),
        "gold.workers": workers(attempts),
        "gold.tasks": tasks(attempts, ended),
        "gold.slo": slo(ended, objectives),
    }


def queue_minutes(events: list[Row], attempts: list[Row]) -> list[Row]:
    if not events:
        return []
    lived = lives(events)
    stays = [stay for life in lived for stay in life.stays]
    last = max(events, key=lambda e: (e["at"], e["offset"]))["at"].replace(second=0, microsecond=0)
    by_id = {(e["tenant"], e["id"]): e["queue"] for e in events}
    latest: dict[tuple[str, str], Row] = {}
    for e in sorted(events, key=lambda e: e["offset"]):
        who = (e["tenant"], e["id"])
        if e["verb"] == "adopt" and who in latest and latest[who]["state"] == e["state"]:
            continue
        if e["verb"] not in ("replace", "ask_cancel"):
            latest[who] = e
    for (tenant, id), e in latest.items():
        if e["state"] == "ready":
            stays.append({"tenant": tenant, "queue": by_id[tenant, id], "ready_at": e["at"], "left_at": None})
    ready = defaultdict(list)
    for stay in stays:
        minute = stay["ready_at"].replace(second=0, microsecond=0)
        while minute <= last and (stay["left_at"] is None or stay["left_at"] >= minute + MINUTE):
            ready[stay["tenant"], stay["queue"], minute].append(stay["ready_at"])
            minute += MINUTE
    happened = defaultdict(list)
    for e in events:
        happened[e["tenant"], e["queue"], e["at"].replace(second=0, microsecond=0)].append(e)
    delivered = defaultdict(list)
    for a in attempts:
        delivered[a["tenant"], a["queue"], a["ended_at"].replace(second=0, microsecond=0)].append(a)
    rows = []
    for key in {*happened, *ready}:
        tenant, queue, minute = key
        es, ds, rs = happened.get(key, []), delivered.get(key, []), ready.get(key, [])
        ends = _ends(es)
        published = _count(es, verb="publish")
        rows.append(
            {
                "tenant": tenant, "queue": queue, "minute": minute, "day": minute.date(), "published": published,
                "claimed": _count(es, verb="claim"), **ends, "failed": _count(es, verb=FAILED),
                "released": _count(es, verb="release"), "replayed": _count(es, verb="replay"),
                "in_rate": published / 60, "out_rate": sum(ends.values()) / 60,
                **_percentiles("wait", (d["wait"] for d in ds)), **_percentiles("run", (d["run"] for d in ds)),
                "depth": len(rs), "oldest": (minute + MINUTE - min(rs)).total_seconds() if rs else None,
            }
        )  # fmt: skip
    return rows


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def rolled_up(minutes: list[Row], attempts: list[Row], by: str) -> list[Row]:
    """Hours or days of queues: what their minutes add up to."""
    key = ("tenant", "queue", "day", *(["hour"] if by == "hour" else []))
    delivered = _grouped([a | {"hour": _hour(a["ended_at"])} for a in attempts], *key)
    sums = ("published", "claimed", "done", "failed", "dead", "cancelled", "expired", "released", "replayed")
    rows = []
    for which, ms in _grouped([m | {"hour": _hour(m["minute"])} for m in minutes], *key).items():
        ds = delivered.get(which, [])
        rows.append(
            {
                **dict(zip(key, which, strict=True)), **{name: sum(m[name] for m in ms) for name in sums},
                **_percentiles("wait", (d["wait"] for d in ds)), **_percentiles("run", (d["run"] for d in ds)),
                "depth": max(ms, key=lambda m: m["minute"])["depth"], "most_ready": max(m["depth"] for m in ms),
                "oldest": max((m["oldest"] for m in ms if m["oldest"] is not None), default=None),
            }
        )  # fmt: skip
    return rows


def failures(events: list[Row], attempts: list[Row]) -> list[Row]:
    failed = []
    for e in events:
        if e["verb"] in FAILED:
            look = "reap" if e["verb"] == "reap" else e["fingerprint"] or e["verb"]
            failed.append(e | {"look": look, "error": None if e["verb"] == "reap" else e["detail"]})
    types = defaultdict(set)
    for a in attempts:
        if a["outcome"] in FAILED:
            types[a["tenant"], a["day"], a["queue"], a["fingerprint"] or a["outcome"]].add(a["type"])
    rows = []
    for key, es in _grouped(failed, "tenant", "day", "queue", "look").items():
        latest = max(es, key=lambda e: (e["at"], e["partition"], e["offset"]))
        rows.append(
            {
                "tenant": key[0], "day": key[1], "queue": key[2], "fingerprint": key[3], "error": latest["error"],
                "attempts": len(es), "messages": len({e["id"] for e in es}), "dead": _count(es, state="dead"),
                "types": sorted(types[key]), "first_at": min(e["at"] for e in es), "last_at": latest["at"],
                "sample_ids": sorted({e["id"] for e in es})[:5],
            }
        )  # fmt: skip
    return rows


def _ran(attempts: Iterable[Row]) -> float:
    return sum((timedelta(seconds=a["run"]) for a in attempts), timedelta()).total_seconds()


def tenant_days(events: list[Row], attempts: list[Row], ended: list[Row]) -> list[Row]:
    worked, over = _grouped(attempts, "tenant", "day"), _grouped(ended, "tenant", "day")
    return [
        {
            "tenant": key[0], "day": key[1], "published": _count(es, verb="publish"),
            "deliveries": len(worked.get(key, [])), "run_seconds": _ran(worked.get(key, [])),
            **_ends(es),
            "payload_bytes": sum(m["payload_bytes"] or 0 for m in over.get(key, [])),
            "result_bytes": sum(m["result_bytes"] or 0 for m in over.get(key, [])),
            "queues": len({e["queue"] for e in es}),
        }
        for key, es in _grouped(events, "tenant", "day").items()
    ]  # fmt: skip


def workers(attempts: list[Row]) -> list[Row]:
    return [
        {
            "tenant": tenant, "day": day, "worker": worker, "deliveries": len(ds), "done": _count(ds, outcome="ack"),
            "failed": _count(ds, outcome=FAILED), "lost": _count(ds, outcome="reap"),
            "released": _count(ds, outcome="release"), "run_seconds": _ran(ds),
            **_percentiles("run", (d["run"] for d in ds)),
            "first_at": min(d["claimed_at"] for d in ds), "last_at": max(d["ended_at"] for d in ds),
        }
        for (tenant, day, worker), ds in _grouped(attempts, "tenant", "day", "worker").items() if worker is not None
    ]  # fmt: skip


def tasks(attempts: list[Row], ended: list[Row]) -> list[Row]:
    key = ("tenant", "day", "queue", "type")
    over = _grouped(ended, *key)
    return [
        {
            **dict(zip(key, which, strict=True)), "deliveries": len(ds), "done": _count(ds, outcome="ack"),
            "failed": _count(ds, outcome=FAILED), "dead": _count(over.get(which, []), state="dead"),
            "failure_ratio": _count(ds, outcome=FAILED) / len(ds),
            **_percentiles("wait", (d["wait"] for d in ds)), **_percentiles("run", (d["run"] for d in ds)),
        }
        for which, ds in _grouped(attempts, *key).items()
    ]  # fmt: skip


def slo(ended: list[Row], objectives: Iterable[Row]) -> list[Row]:
    held: dict[tuple[str, str], Row] = {
        ("*", "success"): {"target": 0.99, "within": None},
        ("*", "latency"): {"target": 0.95, "within": 60.0},
    }
    held |= {(o.get("queue", "*"), o["objective"]): {"within": None, **o} for o in objectives}
    rows = []
    for (tenant, day, queue), ms in _grouped(ended, "tenant", "day", "queue").items():
        for objective in ("success", "latency"):
            chosen = held.get((queue, objective)) or held["*", objective]
            target, within = chosen["target"], chosen["within"]
            done = [m for m in ms if m["state"] == "done"]
            good = len(done if within is None else [m for m in done if m["total"] <= within])
            total = len(done) + (_count(ms, state=("dead", "expired")) if within is None else 0)
            ratio = good / total if total else None
            burn = None
            if ratio is not None:
                burn = (1 - ratio) / (1 - target) if target < 1 else float(total - good)
            rows.append(
                {
                    "tenant": tenant, "day": day, "queue": queue, "objective": objective, "target": target,
                    "within": within, "good": good, "total": total, "ratio": ratio, "burn": burn,
                }
            )  # fmt: skip
    return rows
