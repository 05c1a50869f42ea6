"""Other clients, unmodified: the SDK for JavaScript, and Celery on its own SQS transport."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.conformance.harness import until
from tests.server.sqs.conftest import REGION, credentials
from tests.server.web import Web
from tests.servers.http import Server

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def _environment(server: Server, name: str) -> dict[str, str]:
    id, secret = credentials(server.token)
    aws = {"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
    return {**os.environ, **aws, "ENDPOINT": f"{server.url}/sqs", "QUEUE": name}


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """The packages that the lock names; kept beside the environment, for the next run."""
    assert shutil.which("npm"), "install Node.js 20 or newer, and npm"
    target = Path(sys.prefix) / "tests-sqs-node"
    with (Path(tempfile.gettempdir()) / "tampu-tests-sqs-node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([ROOT / "tools" / "node-packages", HERE / "node", target], check=True)
    return target


def test_a_program_in_javascript(server: Server, name: str, node_modules: Path) -> None:
    program = node_modules / "client.mjs"  # beside node_modules, where Node looks for packages
    shutil.copy(HERE / "node" / "client.mjs", program)
    done = subprocess.run(
        ["node", program], env=_environment(server, name), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {
        "url": f"{server.url}/sqs/000000000000/{name}", "sent": 2, "bodies": ["from JavaScript", "1", "2"], "n": "7",
        "left": "0", "error": "QueueDoesNotExist",
    }  # fmt: skip


def _celery_environment(server: Server, name: str) -> dict[str, str]:
    id, secret = credentials(server.token)
    host = server.url.removeprefix("http://")
    return {
        **os.environ, "BROKER": f"sqs://{id}:{quote(secret, safe='')}@{host}", "QUEUE": f"{name}-",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }  # fmt: skip


@pytest.fixture
def celery_worker(server: Server, name: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "tests.server.sqs.celery_app", "worker"]
    worker = subprocess.Popen(
        [*command, "--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"],
        env=_celery_environment(server, name), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    yield worker
    worker.terminate()
    try:
        worker.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.communicate()


def test_an_application_of_celery(
    server: Server, name: str, web: Web, tmp_path: Path, celery_worker: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "notes"
    send = (
        "import sys\nfrom tests.server.sqs.celery_app import note\n"
        "note.delay(sys.argv[1], 'once')\nnote.delay(sys.argv[1], 'again')\n"
        "note.apply_async((sys.argv[1], 'later'), countdown=1)\n"
    )
    sent = subprocess.run(
        [sys.executable, "-c", send, str(path)], env=_celery_environment(server, name), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr

    def done() -> bool:
        assert celery_worker.poll() is None, celery_worker.communicate()[1].decode()
        return path.exists() and sorted(path.read_text().split()) == ["again", "again", "later", "once"]

    until(done, 240)
    counts = web.get(f"/v1/queues/{name}-celery/stats").json["counts"]
    assert counts["dead"] == 0
