"""What the pages read does not grow with the store; and that something has changed is said once a second at most."""

from __future__ import annotations

import http.client
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu import palette
from tampu.lake.query import Lake
from tampu.server.console import audit_trail, journal_pages, lake, render
from tampu.server.console.pages import PAGES, audit
from tests.server.web import Web
from tests.servers.http import Stall

VENDOR = {"htmx.min.js": ("4.0.1", 'version="4.0.1"'), "uplot.min.js": ("1.6.32", "1.6.32")}


class _Counted:
    """Counts the calls of an engine, and how much each has read."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.read: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.engine, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **more: Any) -> Any:
            answer = found(*arguments, **more)
            size = {"journal": lambda: len(answer.transitions), "page": lambda: len(answer.messages)}.get(name)
            self.read[name] += 1
            if size is not None and answer is not None:
                self.read[f"{name} rows"] += size()
            return answer

        return call


def _grow(store: tampu.Store, count: int) -> None:
    for _ in range(count // 1000):
        store.publish_many("jobs", range(1000))


def test_what_a_page_reads_does_not_grow_with_the_store(stall: Stall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_pages, "_MOST_SEARCHED", 10_000)
    web = Web(stall.url, stall.token)
    paths = [page.path for page in PAGES if page.listed and page.name != "docs"]
    paths += ["queues/jobs", "messages?queue=jobs&state=dead", "messages?type=none"]
    counts: list[dict[str, int]] = []
    with tampu.open(stall.url, token=stall.token) as store:
        store.publish_many("jobs", range(20))
        for lease in store.claim("jobs", limit=20):
            store.reject(lease, "bad", error="ValueError: bad")
        for _ in range(2):
            _grow(store, 50_000 if counts else 45_000)
            while b"data-incomplete" in web.get("/").raw:
                """The journal of the last hour is read once, in steps."""
            counted = _Counted(stall.core.engine)
            monkeypatch.setattr(stall.core, "engine", counted)
            monkeypatch.setattr(stall.state.last_hour, "_engine", counted)
            for path in paths:
                assert web.get(f"/{path}").status == 200, path
            monkeypatch.setattr(stall.core, "engine", counted.engine)
            monkeypatch.setattr(stall.state.last_hour, "_engine", counted.engine)
            counts.append(dict(counted.read))
    for name in ("journal", "journal rows", "page", "page rows", "get"):
        before, after = counts[0].get(name, 0), counts[1].get(name, 0)
        assert after <= 1.3 * before + 50, (name, before, after)


def test_changes_are_said_once_a_second_however_many_there_are(stall: Stall) -> None:
    parts = urllib.parse.urlsplit(stall.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"authorization": f"Bearer {stall.token}"}
    connection.request("GET", f"{parts.path}/changes?queue=jobs", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    with tampu.open(stall.url, token=stall.token) as store:
        while answer.readline() != b"\n":
            pass
        store.publish("others", 1)
        for n in range(300):
            store.publish("jobs", n)
        lines: list[bytes] = []
        while len(lines) < 2:
            line = answer.readline()
            if line.startswith(b"data"):
                lines.append(line)
                store.publish("jobs", 1)
    connection.close()
    assert lines == [b'data: {"queues":["jobs"]}\n'] * 2
    assert Web(stall.url, Web(stall.url, stall.token).key("view:others")).get("/changes?queue=jobs").status == 403
    assert Web(stall.url).get("/changes").status == 401


def test_the_questions_for_the_lake_can_be_asked(tmp_path: Any) -> None:
    with Lake(tmp_path).ask() as ask:
        for sql, _ in lake.QUESTIONS.values():
            assert ask.rows(sql) == []


def test_colours_of_text_can_be_read() -> None:
    for colours in (palette.LIGHT, palette.DARK):
        for back in ("page", "card", "tint"):
            for name in ("ink", "soft", "blue", "green", "amber", "red", "violet", "grey"):
                assert _contrast(colours[name], colours[back]) >= 4.5, (name, back)
        for name in ("blue", "red", "green"):
            assert _contrast(colours["on"], colours[name]) >= 4.5, name


def _contrast(one: str, other: str) -> float:
    shades = sorted(_luminance(colour) for colour in (one, other))
    return (shades[1] + 0.05) / (shades[0] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_libraries_are_those_that_their_list_says() -> None:
    folder = render.STATIC / "vendor"
    table = (folder / "README.md").read_text()
    for name, (version, mark) in VENDOR.items():
        assert mark in (folder / name).read_text(), name
        assert version in table
    assert {path.name for path in folder.iterdir() if path.suffix in render.KINDS} == {*VENDOR, "uplot.min.css"}
    assert len(list(folder.glob("*.LICENSE"))) == 2


def test_the_audit_trail_is_read_backwards_in_bounded_steps(stall: Stall, monkeypatch: pytest.MonkeyPatch) -> None:
    web = Web(stall.url, stall.token)
    for name, value in (("_PAGE", 7), ("_DENSE", 20), ("_SPARSE", 5), ("_MOST_READ", 60)):
        monkeypatch.setattr(audit_trail, name, value)
    monkeypatch.setattr(audit, "_LISTED", 15)
    with tampu.open(stall.url, token=stall.token) as store:
        for n in range(120):
            store.queues.put("jobs" if n % 40 else "rare", max_attempts=1 + n % 9)
        made = [(one.action, one.target, one.at) for one in store.audit(limit=1000)]
    for filters, expected in (("", made), ("target=rare", [one for one in made if one[1] == "rare"])):
        seen: list[tuple[str, str]] = []
        path: str | None = f"/audit?{filters}"
        while path is not None:
            text = web.get(path).raw.decode()
            seen += re.findall(r"<td><code>([^<]*)</code></td><td class=\"why\">([^<]*)</td>", text)
            more = re.search(r'href="(audit\?[^"]*until=[^"]*)"', text)
            path = None if more is None else "/" + more[1].replace("&amp;", "&")
        assert seen == [(action, target) for action, target, _ in reversed(expected)]


def test_the_report_of_a_lake_is_shown_in_a_frame(start: Callable[..., Stall], tmp_path: Path) -> None:
    folder = tmp_path / "shop.lake"
    stall = start(lake=str(folder))
    web = Web(stall.url, stall.token)
    assert "There is no lake beside this store" in web.get("/insights").raw.decode()
    folder.mkdir()
    assert '<iframe class="report" src="insights/report?days=7"' in web.get("/insights").raw.decode()
    report = web.get("/insights/report?days=7")
    assert (report.status, "The lake is empty" in report.raw.decode()) == (200, True)
    policy = report.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
    assert web.as_key(web.key("view:some")).get("/insights/report").status == 403
    assert Web(start().url).get("/insights/report").status == 401
