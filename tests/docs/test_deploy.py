"""The files under deploy/ and the Dockerfile, as far as they can be checked without Docker, systemd and Kubernetes.

Each is parsed; the commands in it are commands of tampu, the variables are settings, the ports and probes fit. What the
image starts is started, with its settings, and answers where its probes ask.
"""

import configparser
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from typer.main import get_command

from tampu.cli.main import app
from tampu.server.settings import ServerSettings
from tests.servers.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = ROOT / "deploy/compose.yaml"
KUBERNETES = ROOT / "deploy/kubernetes/tampu.yaml"
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
SETTINGS = {f"TAMPU_{name.upper()}" for name in ServerSettings.__struct_fields__} | {"TAMPU_TOKEN", "TAMPU_TENANT"}
PROGRAM = [sys.executable, "-c", "from tampu.cli.main import main; main()"]


def _yaml(path: Path) -> list[Any]:
    yaml = importlib.import_module("yaml")  # it brings no types along
    return list(yaml.safe_load_all(path.read_text()))


def _unit(path: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names as they are written
    parser.read(path)
    return parser


def _of(kind: str) -> list[Any]:
    return [one for one in _yaml(KUBERNETES) if one["kind"] == kind]


def _containers() -> list[Any]:
    return [one for d in _of("Deployment") for one in d["spec"]["template"]["spec"]["containers"]]


def _docker(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} +(.*)$", DOCKERFILE, re.MULTILINE)


def _image_env() -> dict[str, str]:
    return dict(word.split("=", 1) for word in _docker("ENV")[0].split())


def _commands() -> Iterator[tuple[str, list[str]]]:
    yield "Dockerfile", json.loads(_docker("CMD")[0])
    (compose,) = _yaml(COMPOSE)
    yield "compose.yaml", compose["services"]["tampu"]["command"]
    for path in UNITS:
        words = shlex.split(_unit(path)["Service"]["ExecStart"].replace("%i", "shop.tasks:app"))
        assert words[0] == "/opt/tampu/bin/tampu"
        yield path.name, words[1:]
    for one in _containers():
        yield one["name"], one["args"]


@pytest.mark.parametrize(("where", "words"), [pytest.param(*one, id=one[0]) for one in _commands()])
def test_each_command_is_one_that_tampu_has_with_these_options(where: str, words: list[str]) -> None:
    group: Any = get_command(app)
    name, *options = words
    command = group.commands[name]
    with command.make_context(name, [*options], parent=group.make_context("tampu", [], resilient_parsing=True)) as made:
        assert made.params is not None, where


def test_each_variable_is_a_setting() -> None:
    (compose,) = _yaml(COMPOSE)
    names = {name for name in _image_env() if name.startswith("TAMPU_")}
    names |= set(compose["services"]["tampu"]["environment"])
    names |= {name for secret in _of("Secret") for name in secret["stringData"]}
    names |= {_unit(path)["Service"]["Environment"].partition("=")[0] for path in UNITS}
    assert names
    assert names - SETTINGS == set()


def test_the_image_installs_the_lock_and_runs_without_rights() -> None:
    assert "--require-hashes -r requirements/run.txt" in DOCKERFILE
    assert _docker("USER") == ["10001"]
    copied = {word for line in _docker("COPY") if "--from" not in line for word in line.split()[:-1]}
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied <= allowed, "the build has what it copies"
    assert all((ROOT / name).exists() for name in copied)
    assert all(re.search(r":\d", image) for image in _docker("FROM")), "a version, not whatever is newest"


def test_what_the_image_starts_answers_where_the_probes_ask(tmp_path: Path) -> None:
    port = free_port()
    given = {name: value.replace("/data", str(tmp_path)) for name, value in _image_env().items() if name != "PATH"}
    env = os.environ | given | {"TAMPU_HOST": "127.0.0.1", "TAMPU_PORT": str(port)}
    server = subprocess.Popen([*PROGRAM, *json.loads(_docker("CMD")[0])], cwd=tmp_path, env=env)
    try:
        http, until = urllib3.PoolManager(retries=False), time.monotonic() + 120
        while True:
            try:
                assert http.request("GET", f"http://127.0.0.1:{port}/ready", timeout=60).status == 200
                break
            except urllib3.exceptions.HTTPError:
                assert server.poll() is None
                assert time.monotonic() < until, "the server does not start"
                time.sleep(0.1)  # noqa: TID251 - another process, which has no other sign
        (asked,) = re.findall(r"http://127\.0\.0\.1:8400(/\w+)", DOCKERFILE)
        paths = {probe["path"] for one in _containers()[:1] for probe in _probes(one)} | {asked}
        assert paths == {"/ready", "/health"}
        for path in paths:
            assert http.request("GET", f"http://127.0.0.1:{port}{path}", timeout=60).status == 200, path
        assert (tmp_path / "admin.key").stat().st_mode & 0o077 == 0
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) in (0, -signal.SIGTERM)  # uvicorn ends with the signal, after it has shut down


def _probes(container: Any) -> list[Any]:
    return [container[name]["httpGet"] for name in ("readinessProbe", "livenessProbe")]


def test_the_pods_fit_together_and_have_no_rights() -> None:
    image_port = int(_image_env()["TAMPU_PORT"])
    labels = {}
    for one in _of("Deployment"):
        pod = one["spec"]["template"]
        assert one["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
        labels[one["metadata"]["name"]] = pod["metadata"]["labels"]
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] == int(_docker("USER")[0])
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        ports = {port["name"] for port in container["ports"]}
        assert {probe["port"] for probe in _probes(container)} == ports
        assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in container["volumeMounts"]}
        assert container["envFrom"] == [{"secretRef": {"name": _of("Secret")[0]["metadata"]["name"]}}]
        if "--grace" in container["args"]:
            grace = int(container["args"][container["args"].index("--grace") + 1])
            assert spec["terminationGracePeriodSeconds"] > grace + 5
            assert str(container["ports"][0]["containerPort"]) in container["args"]
        else:
            assert container["ports"][0]["containerPort"] == image_port
    (service,) = _of("Service")
    assert service["spec"]["selector"] == labels["tampu-server"]
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    (budget,) = _of("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == labels["tampu-server"]


def test_compose_waits_for_the_database_and_serves_only_this_machine() -> None:
    (compose,) = _yaml(COMPOSE)
    assert set(compose["services"]) == {"postgres", "tampu"}
    tampu = compose["services"]["tampu"]
    assert tampu["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert tampu["ports"] == [f"127.0.0.1:{_image_env()['TAMPU_PORT']}:{_image_env()['TAMPU_PORT']}"]
    assert (COMPOSE.parent / tampu["build"] / "Dockerfile").exists()
    assert "password" not in COMPOSE.read_text().replace("a password of your own", "").replace("POSTGRES_PASSWORD", "")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_may_write_only_their_own_folder_and_stop_gently(path: Path) -> None:
    service = _unit(path)["Service"]
    assert (service["ProtectSystem"], service["NoNewPrivileges"], service["User"]) == ("strict", "yes", "tampu")
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["KillSignal"] == "SIGTERM"
    words = service["ExecStart"].split()
    grace = int(words[words.index("--grace") + 1]) if "--grace" in words else ServerSettings().stop_timeout
    assert int(service["TimeoutStopSec"]) > grace + 5
