"""What is built: wheel, sdist and the list of parts. The wheel works with only what it asks for."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import tampu
with tampu.open("jobs.db") as store:
    store.publish("emails", {"to": "ada"})
    (lease,) = store.claim("emails")
    assert lease.payload == {"to": "ada"}
    store.ack(lease)
    print(tampu.__file__, store.stats("emails").done)
try:
    tampu.open("http://127.0.0.1:1")
except tampu.InvalidConfig as error:
    print(error.hint)
"""


def _build(where: Path, target: str, folder: Path) -> Path:
    """By the build backend itself: no network, no other environment."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=where, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def _needed(name: str, found: set[str]) -> set[str]:
    """A distribution and what it needs, without extras."""
    if name not in found:
        found.add(name)
        for text in importlib.metadata.requires(name) or ():
            if ";" not in text:
                _needed(re.match(r"[A-Za-z0-9._-]+", text)[0].lower(), found)  # type: ignore[index]  # every requirement has a name
    return found


def _metadata(wheel: Path) -> importlib.metadata.PackageMetadata:
    (folder,) = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" in name}
    return importlib.metadata.PathDistribution(zipfile.Path(wheel, f"{folder}/")).metadata


def test_the_wheel_works_in_an_environment_with_only_what_it_asks_for(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True, timeout=300)
    python = tmp_path / "env/bin/python"
    asked = [text for text in _metadata(wheel).get_all("Requires-Dist") or () if ";" not in text]
    needed: set[str] = set()
    for text in asked:
        _needed(re.match(r"[A-Za-z0-9._-]+", text)[0].lower(), needed)  # type: ignore[index]  # every requirement has a name
    site = next((tmp_path / "env/lib").glob("python*/site-packages"))
    for name in needed:
        for entry in {
            file.parts[0] for file in importlib.metadata.files(name) or () if file.parts[0] not in ("..", "")
        }:
            if not (site / entry).exists() and entry != "__pycache__":
                (site / entry).symlink_to(Path(str(importlib.metadata.distribution(name).locate_file(entry))))
    env = {"PATH": f"{python.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    install = ["install", "--no-deps", "--no-index", "--disable-pip-version-check", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True, env=env, timeout=300)

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("tampu", "--version").startswith(f"tampu {_metadata(wheel)['Version']} ")
    file, hint = run(python, "-c", PROGRAM).splitlines()
    assert file == f"{site}/tampu/__init__.py 1"
    assert hint == "pip install 'tampu[client]'"
    run("tampu", "--url", "jobs.db", "publish", "emails", "1")
    assert [one["queue"] for one in json.loads(run("tampu", "--url", "jobs.db", "stats", "--json"))["queues"]] == [
        "emails"
    ]


def test_a_wheel_from_the_sdist_is_the_same_and_has_what_is_no_python(wheel: Path, tmp_path: Path) -> None:
    sdist = _build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = (path for path in tmp_path.iterdir() if path.name.startswith("tampu-"))
    again = _build(source, "wheel", tmp_path / "wheel")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(zipfile.ZipFile(again).namelist()) == names
    for path in (ROOT / "src/tampu").rglob("*"):
        if path.is_file() and path.suffix not in (".pyc", ".pyo") and "__pycache__" not in path.parts:
            assert f"tampu/{path.relative_to(ROOT / 'src/tampu')}" in names
    assert "tampu/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_list_of_parts_is_the_lock() -> None:
    made = subprocess.run([sys.executable, ROOT / "tools/sbom"], check=True, capture_output=True, text=True).stdout
    assert (
        made == subprocess.run([sys.executable, ROOT / "tools/sbom"], check=True, capture_output=True, text=True).stdout
    )
    document = json.loads(made)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    lock = (ROOT / "requirements/run.txt").read_text()
    pins = set(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", lock, re.MULTILINE))
    assert {(one["name"], one["version"]) for one in document["components"]} == {(n.lower(), v) for n, v in pins}
    assert sum(len(one["hashes"]) for one in document["components"]) == lock.count("--hash=sha256:")
    refs = {one["bom-ref"] for one in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in document["dependencies"]} == refs
    assert {other for one in document["dependencies"] for other in one["dependsOn"]} <= refs
    needs = {one["ref"].partition("@")[0]: " ".join(one["dependsOn"]) for one in document["dependencies"]}
    assert "pkg:pypi/msgspec@" in needs["pkg:pypi/tampu"]
    assert "pkg:pypi/yarl@" in needs["pkg:pypi/aiohttp"]
