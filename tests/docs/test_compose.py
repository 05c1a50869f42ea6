"""compose.yaml, as far as it can be checked without Docker: it is read, and agrees with the page that explains it."""

import importlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]


def _services() -> dict[str, Any]:
    yaml = importlib.import_module("yaml")  # it brings no types along
    made = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert set(made) == {"services", "volumes"}
    for name, service in made["services"].items():
        assert [v.partition(":")[0] for v in service["volumes"]] == [name]
        assert name in made["volumes"]
    services: dict[str, Any] = made["services"]
    return services


def test_the_page_names_every_service_with_its_url() -> None:
    services = _services()
    page = (ROOT / "docs/how-to/servers.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE)
    assert {name for name, _ in rows} == set(services)
    for name, url in rows:
        parts = urlsplit(url)
        ((host, outside, _),) = (port.split(":") for port in services[name]["ports"])
        assert (parts.hostname, parts.port) == (host, int(outside)) == ("127.0.0.1", int(outside))
        said = {value for key, value in services[name].get("environment", {}).items() if "RANDOM" not in key}
        assert {parts.username, parts.password, parts.path.strip("/")} >= said


def test_redis_keeps_what_it_acknowledged() -> None:
    command = _services()["redis"]["command"]
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert (settings["--appendonly"], settings["--appendfsync"]) == ("yes", "always")
    assert settings["--maxmemory-policy"] == "noeviction"


def test_nobody_else_reaches_the_servers_and_they_are_stopped_gently() -> None:
    for service in _services().values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert {"image", "healthcheck", "stop_grace_period"} <= set(service)
        assert re.search(r":\d", service["image"]), "a version, not whatever is newest"
