"""Who may come in: signatures, clocks, keys, permissions and tenants."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tampu.server.sqs import signature
from tests.cli.run_command import Command
from tests.conformance.harness import until
from tests.server.sqs.conftest import client, credentials
from tests.server.web import Web
from tests.servers.http import Server

TARGET = "AmazonSQS.ListQueues"
TYPE = "application/x-amz-json-1.0"
_pool = urllib3.PoolManager(retries=False)


def _signed(url: str, id: str, secret: str, body: bytes = b"{}", at: datetime | None = None) -> dict[str, str]:
    """The headers of a request, signed by tampu's own code, at any time. It agrees with botocore, see below."""
    now = datetime.now(UTC) if at is None else at
    date = now.strftime("%Y%m%dT%H%M%SZ")
    host = url.split("/")[2]
    headers = {"content-type": TYPE, "host": host, "x-amz-date": date, "x-amz-target": TARGET}
    signed = signature.Signed(id, date[:8], "eu-west-1", tuple(sorted(headers)), "")
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    made = signature.compute(secret, signed, date, signature.canonical("POST", b"/sqs", b"", raw, signed, body))
    scope = f"{id}/{date[:8]}/eu-west-1/sqs/aws4_request"
    names = ";".join(signed.headers)
    headers["authorization"] = f"{signature.ALGORITHM} Credential={scope}, SignedHeaders={names}, Signature={made}"
    return headers


def _ask(server: Server, headers: dict[str, str], body: bytes = b"{}") -> tuple[int, str]:
    answer = _pool.request("POST", f"{server.url}/sqs", headers=headers, body=body, timeout=60)
    return answer.status, str(json.loads(answer.data).get("__type", "")).rpartition("#")[2]


def test_it_computes_what_botocore_computes() -> None:
    request = AWSRequest(
        "POST",
        "http://localhost:1/sqs/000000000000/a%20b?x=2&a=1&a=%2F",
        data=b"body",
        headers={"X-Amz-Meta": " a  b "},
    )
    SigV4Auth(Credentials("tampu_abc", "secret"), "sqs", "eu-west-1").add_auth(request)
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    signed = signature.read(request.headers["Authorization"].encode())
    text = signature.canonical(
        "POST", b"/sqs/000000000000/a%20b", b"x=2&a=1&a=%2F", [*headers, (b"host", b"localhost:1")], signed, b"body"
    )
    assert signature.matches("secret", signed, request.headers["X-Amz-Date"], text)
    assert not signature.matches("Secret", signed, request.headers["X-Amz-Date"], text)


def test_a_changed_request_is_refused(server: Server) -> None:
    id, secret = credentials(server.token)
    headers = _signed(server.url, id, secret)
    assert _ask(server, headers) == (200, "")
    assert _ask(server, headers, b'{"MaxResults": 1}') == (403, "SignatureDoesNotMatch")
    assert _ask(server, headers | {"x-amz-target": "AmazonSQS.PurgeQueue"}) == (403, "SignatureDoesNotMatch")
    assert _ask(server, headers | {"x-amz-date": headers["x-amz-date"][:-3] + "00Z"})[0] in (200, 403)
    assert _ask(server, headers | {"x-amz-security-token": "x"}) == (403, "IncompleteSignature")
    assert _ask(server, headers | {"x-amz-content-sha256": "0" * 64}) == (403, "IncompleteSignature")
    assert _ask(server, headers | {"authorization": headers["authorization"][:-1]}) == (403, "IncompleteSignature")
    assert _ask(server, _signed(server.url, id, secret + "x")) == (403, "SignatureDoesNotMatch")
    assert _ask(server, {"x-amz-target": TARGET, "content-type": TYPE}) == (403, "MissingAuthenticationToken")


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_clock_that_is_wrong_is_named(server: Server, minutes: int) -> None:
    id, secret = credentials(server.token)
    at = datetime.now(UTC) + timedelta(minutes=minutes)
    answer = _pool.request(
        "POST", f"{server.url}/sqs", headers=_signed(server.url, id, secret, at=at), body=b"{}", timeout=60
    )
    assert answer.status == 403
    assert "set the clock" in json.loads(answer.data)["message"]
    near = datetime.now(UTC) + timedelta(minutes=14 if minutes > 0 else -14)
    assert _ask(server, _signed(server.url, id, secret, at=near)) == (200, "")


def test_who_has_no_key_is_refused_before_the_body(server: Server) -> None:
    headers = _signed(server.url, "tampu_" + "x" * 12, "wrong") | {"content-length": "8000000"}
    host, port = server.url.removeprefix("http://").split(":")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"POST /sqs HTTP/1.1\r\n{lines}\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 403")


def test_the_tenant_must_be_signed(server: Server) -> None:
    headers = _signed(server.url, *credentials(server.token)) | {"tampu-tenant": "other"}
    assert _ask(server, headers) == (403, "IncompleteSignature")


def test_a_long_poll_goes_on_when_its_key_is_rotated(server: Server, web: Web, sqs: Any, name: str) -> None:
    url, token = sqs.create_queue(QueueName=name)["QueueUrl"], web.key("consume,publish")
    waiting = client(server.url, token)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(waiting.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        until(lambda: len(server.state.polls) > 0)
        id = credentials(token)[0].removeprefix("tampu_")
        assert web.post(f"/v1/keys/{id}/rotate", {"overlap": 3600}).status == 200
        until(lambda: found.done() or len(server.state.polls) == 0)
        sqs.send_message(QueueUrl=url, MessageBody="x")
        assert found.result(60)["ResponseMetadata"]["HTTPStatusCode"] == 200
    waiting.close()


def test_bad_signatures_are_throttled_and_good_ones_are_not(tmp_path: Path) -> None:
    server = Server(url="memory://", key_file=str(tmp_path / "key"), sqs=True, login_attempts=3)
    try:
        id, secret = credentials(server.token)
        codes = [_ask(server, _signed(server.url, "tampu_" + "x" * 12, "wrong"))[1] for _ in range(4)]
        assert codes == [*["InvalidClientTokenId"] * 3, "RequestThrottled"]
        assert _ask(server, _signed(server.url, id, secret)) == (200, "")
    finally:
        server.stop()


def test_a_key_that_was_rotated_or_revoked_ends(server: Server, web: Web) -> None:
    token = web.key("admin")
    id, secret = credentials(token)
    assert _ask(server, _signed(server.url, id, secret)) == (200, "")
    new = web.post(f"/v1/keys/{id.removeprefix('tampu_')}/rotate", {"overlap": 3600}).json["token"]
    assert credentials(new)[0] == id
    for each in (secret, credentials(new)[1]):
        assert _ask(server, _signed(server.url, id, each)) == (200, "")
    assert web.request("DELETE", f"/v1/keys/{id.removeprefix('tampu_')}").status == 200
    until(lambda: _ask(server, _signed(server.url, id, secret)) == (403, "InvalidClientTokenId"))


def test_permissions_are_those_of_the_key(sqs: Any, name: str, as_key: Any) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sender, receiver = as_key(f"publish:{name}"), as_key(f"consume:{name}")
    sender.send_message(QueueUrl=url, MessageBody="x")
    (message,) = receiver.receive_message(QueueUrl=url)["Messages"]
    refused = [
        lambda: sender.receive_message(QueueUrl=url),
        lambda: sender.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]),
        lambda: receiver.send_message(QueueUrl=url, MessageBody="x"),
        lambda: sender.purge_queue(QueueUrl=url),
        lambda: sender.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"}),
        lambda: sender.create_queue(QueueName=f"{name}-new"),
        lambda: receiver.start_message_move_task(SourceArn=f"arn:aws:sqs:x:000000000000:{name}"),
    ]
    for call in refused:
        with pytest.raises(ClientError) as error:
            call()
        assert error.value.response["Error"]["Code"] == "AccessDenied"
    other = as_key("publish,consume,operate:nothing-*")
    with pytest.raises(ClientError) as error:
        other.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    assert error.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert url not in other.list_queues().get("QueueUrls", [])
    assert sender.list_queues()["QueueUrls"] == [url]
    receiver.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_key_of_another_tenant_sees_nothing(server: Server, sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (mine,) = sqs.receive_message(QueueUrl=url)["Messages"]
    other = client(server.url, Web(server.url, server.token, **{"tampu-tenant": "other"}).key("admin"))
    assert "QueueUrls" not in other.list_queues()
    for call in (
        lambda: other.receive_message(QueueUrl=url),
        lambda: other.delete_message(QueueUrl=url, ReceiptHandle=mine["ReceiptHandle"]),
        lambda: other.get_queue_url(QueueName=name),
    ):
        with pytest.raises(ClientError) as error:
            call()
        assert error.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    other.create_queue(QueueName=name)
    assert "Messages" not in other.receive_message(QueueUrl=url)
    other.close()


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    server = Server(url="memory://", key_file=str(tmp_path / "key"))
    try:
        answer = Web(server.url, server.token).post("/sqs", {})
        assert answer.status == 404
        assert "--sqs" in answer.json["hint"]
    finally:
        server.stop()


def test_the_command_prints_the_credentials(key_file: Path, server: Server) -> None:
    found = Command(key_file.with_name("unused.db")).ok("keys", "aws", "--key-file", str(key_file))
    assert (found["AWS_ACCESS_KEY_ID"], found["AWS_SECRET_ACCESS_KEY"]) == credentials(server.token)
