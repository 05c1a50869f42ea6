"""A real Chromium, started once for a module; each test has a page of its own, signed out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import tampu
from tests.browser import scene
from tests.servers.http import Server
from tests.servers.ports import free_port

_PATIENCE_MS = 60_000
expect.set_options(timeout=_PATIENCE_MS)  # five seconds otherwise: a busy machine needs longer for a page
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
_AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a module: while it is there, no other test of the process could run a loop of its own."""
    path = shutil.which("chromium")
    assert path is not None, "chromium is missing: run tools/servers, or install the Debian package"
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=_FLAGS, timeout=2 * _PATIENCE_MS)
        yield made
        made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(url=str(tmp_path / "jobs.db"), key_file=tmp_path / "admin.key", port=free_port())
    yield made
    made.stop()


@pytest.fixture
def store(server: Server) -> Iterator[tampu.Store]:
    """The store, past the server."""
    with tampu.open(server.settings.url, maintenance=False) as queue:
        yield queue


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that a shop has used for an hour; the tests of a module share it."""
    folder = tmp_path_factory.mktemp("shop")
    scene.fill(str(folder / "jobs.db"))
    made = Server(url=str(folder / "jobs.db"), key_file=folder / "admin.key", port=free_port())
    yield made
    made.stop()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Makes pages that fail the test when a script breaks, or the page breaks its own policy."""
    wrong: list[str] = []
    contexts = []

    def make(**options: Any) -> Page:
        given = {"viewport": {"width": 1280, "height": 960}, "timezone_id": "UTC", "locale": "en-GB", **options}
        context = browser.new_context(**given)
        contexts.append(context)
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
        return page

    yield make
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    return new_page()


def sign_in(page: Page, server: Server, token: str | None = None) -> None:
    page.goto(server.url)
    page.get_by_label("Key").fill(token or server.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Overview", exact=True)).to_be_visible()


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_text("live")


def faults(page: Page, *, contrast_only: bool = False) -> list[str]:
    """What axe finds wrong with a page: serious and critical faults."""
    page.evaluate(_AXE)
    only = {"runOnly": ["color-contrast"]} if contrast_only else {"resultTypes": ["violations"]}
    found = page.evaluate("(options) => axe.run(document, options)", only)
    return [
        f"{one['id']}: {one['help']}: {node['html'][:150]} {node.get('failureSummary', '')[:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def picture(page: Page, name: str) -> None:
    """Write a picture for the documents, if TAMPU_PICTURES is set."""
    if os.environ.get("TAMPU_PICTURES"):
        page.screenshot(path=str(PICTURES / f"{name}.png"))
