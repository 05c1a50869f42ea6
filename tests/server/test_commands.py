"""`tampu serve` and `tampu keys` as users call them."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import tampu
from tampu.cli.commands.serve.server import serve
from tampu.server.settings import DURATIONS, ServerSettings, load
from tests.cli.run_command import Command
from tests.conformance.harness import until
from tests.server.web import Web

TAMPU = [sys.executable, "-c", "from tampu.cli.main import main; main()"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TAMPU_")}


def _run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TAMPU, *words], cwd=place, env=CLEAN, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, which ends with the test, however that ends."""
    command = [*TAMPU, "--json", "serve", "--port", "0", "--log-format", "json", "--access-log"]
    with subprocess.Popen(command, cwd=tmp_path, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_serve_tells_where_it_is_and_stops_in_order(tmp_path: Path, serving: subprocess.Popen[bytes]) -> None:
    assert serving.stdout is not None
    started = json.loads(serving.stdout.readline())
    token = (tmp_path / "tampu.db.key").read_text().strip()
    web = Web(started["url"], token)
    until(lambda: web.get("/health").status == 200)
    assert started.get("sign_in") is None, "this is no terminal: it may be a log"
    link = json.loads(_run(tmp_path, "signin", "--at", started["url"], "--json").stdout)["link"]
    signed_in = web.as_key(None).get(link.removeprefix(started["url"]))
    cookie = signed_in.headers["set-cookie"].split(";")[0]
    assert web.as_key(None).get("/v1/me", cookie=cookie).status == 200
    assert "1 session ended" in _run(tmp_path, "signout").stdout
    until(lambda: web.as_key(None).get("/v1/me", cookie=cookie).status == 401)
    with tampu.open(started["url"], token=token) as store:
        message = store.publish("jobs", {"n": 1})
        assert store.claim("jobs")[0].id == message.id
    web.get("/v1/queues", x_request_id="mine-1")
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(60) == -signal.SIGTERM
    assert serving.stderr is not None
    log = [json.loads(line) for line in serving.stderr.read().splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in log)
    assert token not in json.dumps(log)
    requests = [line for line in log if line["event"] == "request"]
    assert all(line["request_id"] for line in requests)
    assert [line["route"] for line in requests if line["request_id"] == "mine-1"] == ["/v1/queues"]


def test_keys_are_made_listed_rotated_and_revoked_on_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMPU_URL", str(tmp_path / "jobs.db"))
    command = Command(tmp_path / "jobs.db")
    created = command.ok("keys", "create", "shop", "--grant", "publish,view:orders.*")
    id = created["key"]["id"]
    assert created["token"].startswith(f"tampu_{id}_")
    (listed,) = command.ok("keys", "list")["keys"]
    assert (listed["name"], listed["tenant"]) == ("shop", "default")
    assert "shop" in command("keys", "list").out
    assert command.ok("keys", "rotate", f"tampu_{id}")["token"] != created["token"]
    assert command("keys", "revoke", id).code == 0
    assert command.ok("keys", "list") == {"keys": []}
    assert command("keys", "revoke", id).code == 3
    assert command("keys", "create", "x", "--grant", "dance").code == 2
    timed = command.ok("keys", "create", "timed", "--grant", "view", "--expires-in", "30d")["key"]
    lifetime = datetime.fromisoformat(timed["expires_at"]) - datetime.fromisoformat(timed["created_at"])
    assert lifetime == timedelta(days=30)


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"host": "0.0.0.0", "auth": False}, "auth"),
        ({"host": "example.org", "auth": False}, "auth"),
        ({"port": 70_000}, "port"),
        ({"log_format": "xml"}, "log_format"),
        ({"oidc_issuer": "https://id.example"}, "oidc_audience"),
    ],
)
def test_settings_that_cannot_be_are_refused(flags: dict[str, Any], field: str) -> None:
    with pytest.raises(tampu.InvalidConfig) as refused:
        load(**flags)
    assert refused.value.field == field


def test_a_flag_is_stronger_than_the_environment_and_that_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tampu.toml"
    file.write_text('url = "a.db"\nport = 1\nmax_wait = 5\n')
    monkeypatch.setenv("TAMPU_PORT", "2")
    monkeypatch.setenv("TAMPU_URL", "b.db")
    held = load(file, url="c.db")
    assert (held.url, held.port, held.max_wait) == ("c.db", 2, 5)
    monkeypatch.setenv("TAMPU_IDLE_TIMEOUT", "2m")
    timed = load(file, stop_timeout="1m30s")
    assert (timed.idle_timeout, timed.stop_timeout) == (120, 90)
    with pytest.raises(tampu.InvalidConfig, match="not a duration"):
        load(file, read_timeout="soon")
    file.write_text("prot = 1\n")
    with pytest.raises(tampu.InvalidConfig, match="prot"):
        load(file)
    with pytest.raises(tampu.InvalidConfig):
        load(tmp_path / "nowhere.toml")


def test_every_setting_is_an_option_of_its_type_and_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/server-settings.md").read_text()
    flags = inspect.signature(serve).parameters
    for name, annotation in get_type_hints(ServerSettings, include_extras=True).items():
        kind, about = get_args(annotation)
        assert f"| `{name}` |" in page, name
        assert about.description in page, name
        if name != "url":
            plain = kind in (bool, int, float) and name not in DURATIONS
            assert (kind if plain else str) in get_args(get_args(flags[name].annotation)[0]), name


def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = _run(tmp_path, "serve", "--port", str(taken.getsockname()[1]))
    assert said.returncode == 2
    assert "cannot listen" in said.stderr
