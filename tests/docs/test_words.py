"""The documents are in plain English: words that make a reader stop do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
REFUSED = {"can not": "cannot", "so many": "a number, or 'at most N'", "told": "reported, listed, known"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_word_that_makes_a_reader_stop(page: Path) -> None:
    text = " ".join(page.read_text().split())
    found = {words: instead for words, instead in REFUSED.items() if re.search(rf"\b{words}\b", text, re.IGNORECASE)}
    assert found == {}, "write this instead"


def test_all_pages_are_looked_at() -> None:
    assert {"README.md", "CHANGELOG.md", "tutorial.md", "engines.md"} <= {page.name for page in PAGES}
