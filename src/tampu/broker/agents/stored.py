"""The documents of agents. Users write a `Control`, the leader a `Report`: neither waits for the other."""

from __future__ import annotations

import msgspec

from tampu.engines.port import Engine, PutDocument
from tampu.model.decoders import from_json

CONTROL = "agent"
REPORT = "agent_report"
TENANT = "*"
"""Agents belong to the whole store, not to a tenant; no tenant can have this name."""


class Task(msgspec.Struct, frozen=True):
    """A maintenance task, in words."""

    name: str
    role: str
    schedule: str


EXPIRY, RETENTION, SCHEDULES, REORDER = "expiry", "retention", "schedules", "reorder"
ALERTS, WEBHOOKS = "alerts", "webhooks"
REPLAYS, TIMERS, RECOVERY = "replays", "timers", "recovery"
TASKS = (
    Task(
        EXPIRY,
        "makes delayed messages ready when they are due, ends expired leases, expires messages",
        "when something is due",
    ),
    Task(
        RETENTION,
        "removes ended messages, dead letters, results, keys and journal records past their retention",
        "every 5 seconds, every 30 if there was nothing",
    ),
    Task(SCHEDULES, "publishes the messages of schedules", "when a schedule is due"),
    Task(REORDER, "completes a change of a queue's ordering or group limits", "after the change"),
    Task(REPLAYS, "carries on replays of dead letters", "at the rate of the replay"),
    Task(ALERTS, "evaluates alerts", "every 30 seconds while something happens"),
    Task(WEBHOOKS, "sends what rules and alerts have for urls", "at once, and again after failures"),
    Task(TIMERS, "reminds of reviews, escalates them, and decides at their deadline", "when a timer is due"),
    Task(
        RECOVERY,
        "completes erasures and fills of subscriptions whose process has died, or that wait for leased messages",
        "every 30 seconds while there is one",
    ),
)


class Control(msgspec.Struct, frozen=True, omit_defaults=True):
    """What users want of an agent. It stays for the next leader."""

    paused: bool = False
    asked_us: int = 0
    """When a run was last asked for; a report of a later time has answered it."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a leader has done."""

    leader: str = ""
    ran_us: int = 0
    done: int = 0
    error: str | None = None
    error_us: int = 0


read_control = from_json(Control).decode
read_report = from_json(Report).decode


def controls(engine: Engine) -> dict[str, Control]:
    """What users want, by agent. An agent that nobody has ever touched is not among them."""
    return {document.name: read_control(document.value) for document in engine.documents(CONTROL, TENANT)}


def reports(engine: Engine) -> dict[str, Report]:
    return {document.name: read_report(document.value) for document in engine.documents(REPORT, TENANT)}


def saving(name: str, report: Report) -> PutDocument:
    """The call that stores a report."""
    return PutDocument(REPORT, TENANT, name, msgspec.json.encode(report))
