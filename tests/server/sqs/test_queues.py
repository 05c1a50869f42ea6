"""Queues by boto3: attributes, tags, lists, and the errors that SDKs know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.server.web import Web


def _refusal(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    response = error.value.response
    code = response["Error"].get("QueryErrorCode") or response["Error"]["Code"]
    return code, response["ResponseMetadata"]["HTTPStatusCode"]


def test_attributes_have_the_defaults_of_sqs_and_can_be_set(sqs: Any, name: str, web: Web) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert found["QueueArn"] == f"arn:aws:sqs:eu-west-1:000000000000:{name}"
    assert {k: found[k] for k in ("VisibilityTimeout", "DelaySeconds", "MessageRetentionPeriod")} == {
        "VisibilityTimeout": "30", "DelaySeconds": "0", "MessageRetentionPeriod": "345600",
    }  # fmt: skip
    assert "FifoQueue" not in found
    sqs.set_queue_attributes(
        QueueUrl=url, Attributes={"VisibilityTimeout": "90", "DelaySeconds": "5", "MaximumMessageSize": "1024"}
    )
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout", "DelaySeconds"])["Attributes"]
    assert found == {"VisibilityTimeout": "90", "DelaySeconds": "5"}
    settings = web.get(f"/v1/queues/{name}/config").json
    assert (settings["lease"], settings["ttl"], settings["max_payload"]) == (90, 345_600, 1024)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert web.get(f"/v1/queues/{name}/stats").json["counts"]["delayed"] == 1
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=url, MessageBody="x" * 1025)
    assert _refusal(error) == ("InvalidParameterValue", 400)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"DelaySeconds": "-1"}, "InvalidAttributeValue"),
        ({"NoSuch": "1"}, "InvalidAttributeName"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"RedrivePolicy": "{"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": json.dumps({"deadLetterTargetArn": "x", "maxReceiveCount": 3})}, "InvalidAttributeValue"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_attributes_are_refused(sqs: Any, name: str, attributes: dict[str, str], code: str) -> None:
    with pytest.raises(ClientError) as error:
        sqs.create_queue(QueueName=name, Attributes=attributes)
    assert _refusal(error) == (code, 400)
    with pytest.raises(ClientError) as error:
        sqs.get_queue_url(QueueName=name)
    assert _refusal(error)[0] == "QueueDoesNotExist"


@pytest.mark.parametrize("bad", ["a.b", "a b", "x" * 81, "a.fifo"])
def test_wrong_names_are_refused(sqs: Any, bad: str) -> None:
    with pytest.raises(ClientError) as error:
        sqs.create_queue(QueueName=bad)
    assert _refusal(error) == ("InvalidParameterValue", 400)


def test_creating_again_needs_the_same_attributes(sqs: Any, name: str) -> None:
    first = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "1"})
    assert sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "1"})["QueueUrl"] == first["QueueUrl"]
    assert (
        sqs.create_queue(QueueName=name)["QueueUrl"]
        == first["QueueUrl"]
        == sqs.get_queue_url(QueueName=name)["QueueUrl"]
    )
    with pytest.raises(ClientError) as error:
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "2"})
    assert _refusal(error) == ("QueueNameExists", 400)


def test_queues_are_listed_in_pages(sqs: Any, name: str) -> None:
    urls = [sqs.create_queue(QueueName=f"{name}-{n}")["QueueUrl"] for n in range(5)]
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=f"{name}-", PaginationConfig={"PageSize": 2})
    found = [page.get("QueueUrls", []) for page in pages]
    assert found == [urls[:2], urls[2:4], urls[4:]]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=f"{name}-none")


def test_queues_made_without_sqs_can_be_used(sqs: Any, name: str, web: Web) -> None:
    web.post(f"/v1/queues/{name}/publish", {"messages": [{"payload": "x"}]})
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == '"x"'
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_tags(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, tags={"team": "shop"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"cost": "7", "old": "x"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["old"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "shop", "cost": "7"}
    with pytest.raises(ClientError) as error:
        sqs.tag_queue(QueueUrl=url, Tags={str(n): "" for n in range(50)})
    assert _refusal(error) == ("InvalidParameterValue", 400)


def test_purging_is_allowed_once_a_minute(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=60)
    sqs.purge_queue(QueueUrl=url)
    counts = sqs.get_queue_attributes(
        QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
    )
    assert set(counts["Attributes"].values()) == {"0"}
    with pytest.raises(ClientError) as error:
        sqs.purge_queue(QueueUrl=url)
    assert _refusal(error) == ("PurgeQueueInProgress", 403)


@pytest.mark.parametrize("leased", [False, True], ids=["waiting", "leased"])
def test_a_deleted_queue_is_gone_until_it_is_created_again(sqs: Any, name: str, leased: bool) -> None:
    url = sqs.create_queue(QueueName=name, tags={"a": "b"})["QueueUrl"]
    sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(2)])
    if leased:
        assert sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_queue(QueueUrl=url)
    for call in (sqs.receive_message, sqs.get_queue_attributes, sqs.delete_queue):
        with pytest.raises(ClientError) as error:
            call(QueueUrl=url)
        assert _refusal(error) == ("QueueDoesNotExist", 400)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=name)
    sqs.create_queue(QueueName=name)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    sqs.send_message(QueueUrl=url, MessageBody="new")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "new"


def test_permissions_of_sqs_are_accepted_without_effect(sqs: Any, name: str, as_key: Any) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["000000000000"], Actions=["*"])
    sqs.remove_permission(QueueUrl=url, Label="l")
    with pytest.raises(ClientError) as error:
        as_key("publish:other").send_message(QueueUrl=url, MessageBody="x")
    assert _refusal(error) == ("AccessDenied", 403)
