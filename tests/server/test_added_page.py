"""The page of docs/how-to/add-a-console-page.md works as it is written there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest

import tampu
from tampu.server.app import framework
from tampu.server.console import pages, render
from tests.server.web import Web
from tests.servers.http import Stall

GUIDE = Path(__file__).resolve().parents[2] / "docs/how-to/add-a-console-page.md"


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The page of the guide, as if it were in the package."""
    names: dict[str, Any] = {}
    exec(compile(_block("python"), str(GUIDE), "exec"), names)  # noqa: S102 - what the guide tells its readers to write
    page = names["page"]
    environment = render._environment()
    before = environment.loader
    assert before is not None
    environment.loader = jinja2.ChoiceLoader([before, jinja2.DictLoader({"held.html": _block("html")})])
    routes = framework().router.routes
    kept = list(routes)
    framework().include_router(page.router)
    monkeypatch.setattr(pages, "PAGES", (*pages.PAGES, page))
    yield page
    routes[:] = kept
    environment.loader = before


def test_the_page_of_the_guide_shows_and_frees_held_messages(stall: Stall, held: Any) -> None:
    web = Web(stall.url, stall.token)
    with tampu.open(stall.url, token=stall.token) as store:
        store.publish_many("jobs", [tampu.NewMessage(n, hold="look") for n in range(3)])
        shown = web.get("/held").raw.decode()
        assert 'href="held" aria-current="page"' in shown
        assert 'href="held/jobs/free" data-ask' in shown
        assert "3 messages become ready." in web.get("/held/jobs/free").raw.decode()
        viewer = web.as_key(web.key("view"))
        assert "data-ask" not in viewer.get("/held").raw.decode()
        assert viewer.post("/held/jobs/free").status == 403
        answer = web.post("/held/jobs/free")
        assert (answer.status, answer.headers["location"]) == (303, "../../held")
        assert (store.stats("jobs").ready, store.stats("jobs").held) == (3, 0)
        assert "Nothing is held" in web.get("/held").raw.decode()
        assert [one.action for one in store.audit(actor="admin")] == ["key.create", "message.free"]
