"""docs/README.md: every page can be found from there, and every link leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")


def _links(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text())}


def test_every_page_is_in_the_index() -> None:
    linked = _links(ROOT / "docs/README.md")
    pages = {
        page for folder in ("how-to", "reference", "explanation") for page in (ROOT / "docs" / folder).glob("*.md")
    }
    assert sorted(str(page.relative_to(ROOT)) for page in pages - linked) == []


@pytest.mark.parametrize("page", ["README.md", "docs/README.md", "docs/tutorial.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    assert [str(target) for target in _links(ROOT / page) if not target.exists()] == []
