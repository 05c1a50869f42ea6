"""The page about the architecture names files and packages that are there, and its picture is drawn."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
PACKAGE = ROOT / "src" / "tampu"


def test_every_path_on_the_page_exists() -> None:
    named = set(re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", PAGE.read_text()))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_page_shows_every_package() -> None:
    text = PAGE.read_text() + PICTURE.read_text()
    packages = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert [name for name in packages if f"{name}/" not in text] == []


def test_the_picture_is_well_formed_and_described() -> None:
    root = ElementTree.parse(PICTURE).getroot()
    assert root.find("{http://www.w3.org/2000/svg}title") is not None


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_newcomers_find_the_page(page: str) -> None:
    assert "docs/explanation/architecture.md" in (ROOT / page).read_text()


def test_every_package_says_what_lives_there() -> None:
    silent = [
        str(init.parent.relative_to(ROOT))
        for init in PACKAGE.rglob("__init__.py")
        if len(init.read_text().split('"""')) < 3 or len(init.read_text().split('"""')[1].split()) < 5
    ]
    assert silent == []
