"""The report: one well-formed page that loads nothing, runs nothing, and shows hostile texts as texts."""

from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tampu.lake import report
from tampu.lake.insights import gather
from tampu.lake.query import Lake
from tampu.lake.report.charts import Curve, escape, over_time
from tests.lake import sample
from tests.lake.sample import START, minute

HOSTILE = "</style><script>alert('1')</script><img src=x onerror=alert(2)>&\"\u202e\x1b[31m\ud800ü"
_VOID = {"meta"}


class Page(HTMLParser):
    """What a browser would find: tags that must match, and the texts between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(lake: Path) -> Page:
    target = report.write(gather(Lake(lake)), lake / "report.html")
    page = Page(target.read_text(encoding="utf-8"))
    assert page.open == []
    return page


def test_report_has_every_picture_with_title_description_and_table(tmp_path: Path):
    sample.busy(tmp_path, days=2)
    page = made(tmp_path)
    for title in ("Throughput", "Waiting time", "Depth", "Failures", "Objectives", "Busiest hours", "What fails"):
        assert title in page.text
    for name in ("flow", "wait", "depth", "bad", "slo", "week"):
        assert {f"{name}-t", f"{name}-d"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("table") >= 10


def test_report_loads_and_runs_nothing(tmp_path: Path):
    sample.busy(tmp_path, days=1)
    page = made(tmp_path)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "a", "image", "use"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href", "srcset") or name.startswith("on")]
    text = (tmp_path / "report.html").read_text()
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_hostile_texts_are_shown_and_not_obeyed(tmp_path: Path):
    kept = HOSTILE.replace("\ud800", "")
    sample.write(
        tmp_path, "gold.queue_minutes", [minute(n, kept, published=n, depth=1, tenant=t) for n in (1, 2) for t in "ab"]
    )
    sample.write(tmp_path, "gold.tenant_days", [{"published": 1, "tenant": t} for t in "ab"])
    at = START + timedelta(minutes=1)
    failure = {"queue": kept, "fingerprint": kept, "error": kept, "types": [kept], "sample_ids": [kept], "last_at": at}
    sample.write(tmp_path, "gold.failures", [failure])
    sample.write(tmp_path, "gold.slo", [{"queue": kept, "objective": kept, "target": 0.9, "good": 1, "total": 2}])
    sample.write(tmp_path, "gold.tasks", [{"queue": kept, "type": kept}])
    sample.write(tmp_path, "gold.workers", [{"worker": kept, "last_at": at}])
    page = made(tmp_path)
    assert not {"script", "img"} & set(page.tags)
    assert page.tags.count("style") == 1
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "<script>alert('1')</script>" in page.text
    whole = (tmp_path / "report.html").read_text()
    assert "\x1b" not in whole
    assert "\u202e" not in whole


def test_any_text_becomes_plain_html():
    assert escape(HOSTILE).isprintable()
    assert not set(escape(HOSTILE)) & set("<>\"'")
    assert "\\ud800" in escape(HOSTILE)


@pytest.mark.parametrize("days", [0, 1])
def test_empty_and_tiny_lakes_make_a_page(days: int, tmp_path: Path):
    if days:
        sample.write(tmp_path, "gold.queue_minutes", [{"queue": "q", "minute": START}])
    page = made(tmp_path)
    assert ("The lake is empty" in page.text) == (not days)


def test_report_replaces_its_file_whole(tmp_path: Path):
    made(tmp_path)
    made(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_drawing_is_well_formed_and_inside_its_frame():
    at = [START + timedelta(minutes=n) for n in range(5)]
    curves = [
        Curve("a <b>", [None, 1, None, 2**70, 5], "blue", "area"), Curve("c", [0, 1, 2, 3, 4], "red", "column"),
    ]  # fmt: skip
    picture = over_time("x", "T <i>", "D & d", at, curves, mark=(1.0, "level"))
    drawing = ET.fromstring(picture[picture.index("<svg") : picture.index("</svg>") + 6])
    assert drawing.findtext("title") == "T <i>"
    assert "nan" not in picture
    assert "inf" not in picture
    numbers = [float(part) for path in drawing.iter("path") for part in path.attrib["d"].replace("M", " ")
               .replace("L", " ").replace("V", " ").replace("h", " ").replace("z", " ").split()]  # fmt: skip
    assert all(0 <= number <= 1000 for number in numbers)


def test_chart_of_nothing_is_drawn():
    assert "<svg" in over_time("x", "T", "D", [], [Curve("a", [], "blue"), Curve("b", [], "red", "column")])
