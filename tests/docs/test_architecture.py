"""The page about the architecture names files and packages that are there, and its picture is drawn."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
PACKAGE = ROOT / "src" / "tampu"


def test_every_file_and_folder_on_the_page_is_named_by_its_whole_path() -> None:
    words = re.findall(r"`([^`\s]+)`", PAGE.read_text())
    named = {word for word in words if "://" not in word and re.search(r"/|\.(py|sql|lua|md|toml)$", word)}
    assert len(named) > 50
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


def test_every_top_package_says_what_does_not_live_there() -> None:
    inits = [path / "__init__.py" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert len(inits) > 10
    assert [init.parent.name for init in inits if "Not here: " not in init.read_text().split('"""')[1]] == []
