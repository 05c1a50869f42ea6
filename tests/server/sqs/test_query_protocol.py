"""The query protocol of older SDKs: forms in, XML out. No SDK of today speaks it, so it is asked by hand."""

from __future__ import annotations

import urllib.parse
import xml.etree.ElementTree as ET
from typing import Any

import pytest
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.server.sqs.conftest import REGION, credentials
from tests.servers.http import Server

_pool = urllib3.PoolManager(retries=False)
_SPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
FORM = "application/x-www-form-urlencoded; charset=utf-8"


class Query:
    def __init__(self, server: Server) -> None:
        self.url = f"{server.url}/sqs"
        self._auth = SigV4Auth(Credentials(*credentials(server.token)), "sqs", REGION)

    def __call__(self, action: str, path: str = "", **fields: str) -> tuple[int, Any]:
        """(the status, the answer as XML)"""
        body = urllib.parse.urlencode({"Action": action, "Version": "2012-11-05", **fields})
        return self.send(body.encode(), path)

    def send(self, body: bytes, path: str = "") -> tuple[int, Any]:
        request = AWSRequest("POST", self.url + path, data=body, headers={"Content-Type": FORM})
        self._auth.add_auth(request)
        answer = _pool.request("POST", self.url + path, headers=dict(request.headers), body=body, timeout=60)
        assert answer.headers["content-type"] == "text/xml"
        return answer.status, ET.fromstring(answer.data)


@pytest.fixture(scope="module")
def query(server: Server) -> Query:
    return Query(server)


def _texts(found: Any, *path: str) -> list[str]:
    return [element.text or "" for element in found.findall("/".join(_SPACE + name for name in path))]


def test_a_message_goes_the_whole_way(query: Query, name: str) -> None:
    status, made = query(
        "CreateQueue", QueueName=name,
        **{"Attribute.1.Name": "VisibilityTimeout", "Attribute.1.Value": "60"},
        **{"Tag.1.Key": "team", "Tag.1.Value": "shop"},
    )  # fmt: skip
    (url,) = _texts(made, "CreateQueueResult", "QueueUrl")
    assert (status, url.rpartition("/")[2]) == (200, name)
    path = urllib.parse.urlsplit(url).path.removeprefix("/sqs")
    attribute = {"MessageAttribute.1.Name": "n", "MessageAttribute.1.Value.DataType": "Number"}
    attribute["MessageAttribute.1.Value.StringValue"] = "7"
    _, sent = query("SendMessage", path, MessageBody="<a> & \r\nb", **attribute)
    assert len(_texts(sent, "SendMessageResult", "MD5OfMessageAttributes")[0]) == 32
    _, received = query(
        "ReceiveMessage",
        path,
        **{"MaxNumberOfMessages": "10", "AttributeName.1": "All", "MessageAttributeName.1": "All"},
    )
    message = ("ReceiveMessageResult", "Message")
    assert _texts(received, *message, "Body") == ["<a> & \r\nb"]
    assert _texts(received, *message, "MessageAttribute", "Name") == ["n"]
    assert _texts(received, *message, "MessageAttribute", "Value", "StringValue") == ["7"]
    names = _texts(received, *message, "Attribute", "Name")
    assert "ApproximateReceiveCount" in names
    (handle,) = _texts(received, *message, "ReceiptHandle")
    entry = "ChangeMessageVisibilityBatchRequestEntry.1"
    fields = {f"{entry}.Id": "a", f"{entry}.ReceiptHandle": handle, f"{entry}.VisibilityTimeout": "9"}
    _, changed = query("ChangeMessageVisibilityBatch", path, **fields)
    result = ("ChangeMessageVisibilityBatchResult", "ChangeMessageVisibilityBatchResultEntry", "Id")
    assert _texts(changed, *result) == ["a"]
    status, gone = query("DeleteMessage", path, ReceiptHandle=handle)
    assert (status, len(_texts(gone, "ResponseMetadata", "RequestId"))) == (200, 1)
    _, found = query("GetQueueAttributes", path, **{"AttributeName.1": "VisibilityTimeout"})
    assert _texts(found, "GetQueueAttributesResult", "Attribute", "Value") == ["60"]
    _, tags = query("ListQueueTags", path)
    assert _texts(tags, "ListQueueTagsResult", "Tag", "Key") == ["team"]


def test_a_batch_has_an_entry_for_each_outcome(query: Query, name: str) -> None:
    query("CreateQueue", QueueName=name)
    fields: dict[str, str] = {}
    for n, body in enumerate(["one", "two", "\x01"], 1):
        entry = f"SendMessageBatchRequestEntry.{n}"
        fields |= {f"{entry}.Id": f"e{n}", f"{entry}.MessageBody": body}
    _, sent = query("SendMessageBatch", f"/000000000000/{name}", **fields)
    assert _texts(sent, "SendMessageBatchResult", "SendMessageBatchResultEntry", "Id") == ["e1", "e2"]
    failed = ("SendMessageBatchResult", "BatchResultErrorEntry")
    assert _texts(sent, *failed, "Id") == ["e3"]
    assert _texts(sent, *failed, "SenderFault") == ["true"]
    _, received = query("ReceiveMessage", f"/000000000000/{name}", MaxNumberOfMessages="10")
    assert _texts(received, "ReceiveMessageResult", "Message", "Body") == ["one", "two"]


def test_names_that_xml_does_not_have_are_replaced(query: Query, name: str) -> None:
    query("CreateQueue", QueueName=name, **{"Tag.1.Key": "a\x00b", "Tag.1.Value": "v\x01"})
    _, tags = query("ListQueueTags", f"/000000000000/{name}")
    assert _texts(tags, "ListQueueTagsResult", "Tag", "Key") == ["a\ufffdb"]


def test_errors_have_the_codes_of_the_query_protocol(query: Query, name: str) -> None:
    status, error = query("GetQueueUrl", QueueName=name)
    assert status == 400
    assert _texts(error, "Error", "Code") == ["AWS.SimpleQueueService.NonExistentQueue"]
    assert _texts(error, "Error", "Type") == ["Sender"]
    assert _texts(query("NoSuch")[1], "Error", "Code") == ["InvalidAction"]
    assert _texts(query("SendMessage", QueueUrl="x/y z")[1], "Error", "Code") == ["InvalidAddress"]


@pytest.mark.parametrize(
    "body",
    [
        b"Action=ListQueues&" + b"&".join(b"a%d=1" % n for n in range(3000)),
        b"Action=ListQueues&" + b".".join([b"a"] * 50) + b"=1",
        b"Action=SendMessage&A=1&A.1.B=2",
        b"\xff",
        b"",
    ],
    ids=["many", "deep", "both", "bytes", "empty"],
)
def test_forms_that_are_wrong(query: Query, body: bytes) -> None:
    status, error = query.send(body)
    assert status == 400
    assert _texts(error, "Error", "Code")[0] in ("MalformedQueryString", "InvalidAction")
