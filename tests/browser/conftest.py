"""A real Chromium, started once for a module; each test has a page of its own, signed out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import tampu
from tests.servers.http import Server
from tests.servers.ports import free_port

_PATIENCE_MS = 60_000
expect.set_options(timeout=_PATIENCE_MS)  # five seconds otherwise: a busy machine needs longer for a page
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


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


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Fails the test when a script breaks, or the page breaks its own policy."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, timezone_id="UTC", locale="en-GB")
    context.set_default_timeout(_PATIENCE_MS)
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on(
        "console", lambda message: wrong.append(message.text) if "Content Security Policy" in message.text else None
    )
    made.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
    yield made
    context.close()
    assert wrong == []
