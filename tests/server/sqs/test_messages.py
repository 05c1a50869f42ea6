"""Messages by boto3, unmodified: it checks the MD5 of every body and attribute by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conformance.harness import until
from tests.server.web import Web


def _queue(sqs: Any, name: str, **attributes: str) -> str:
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def _receive(sqs: Any, url: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sqs.receive_message(
        QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"], **{"MaxNumberOfMessages": 10, **more}
    ).get("Messages", [])
    return found


def _task(sqs: Any, arn: str) -> Any:
    """The last task that moves messages of a queue."""
    (task,) = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    return task


def _code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"].get("QueryErrorCode") or error.value.response["Error"]["Code"])


def test_a_message_arrives_with_its_attributes_and_is_deleted(sqs: Any, name: str) -> None:
    url = _queue(sqs, name)
    attributes = {
        "text": {"DataType": "String", "StringValue": "grüße"},
        "long": {"DataType": "String", "StringValue": "x" * 5000},
        "number": {"DataType": "Number", "StringValue": "1e3"},
        "custom": {"DataType": "Number.int", "StringValue": "7"},
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody="<hello>\r\n & \U0001f600",
        MessageAttributes=attributes,
        MessageSystemAttributes=trace,
    )
    (message,) = _receive(sqs, url)
    assert message["Body"] == "<hello>\r\n & \U0001f600"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    assert message["Attributes"]["SentTimestamp"] <= message["Attributes"]["ApproximateFirstReceiveTimestamp"]
    assert _receive(sqs, url) == []  # in flight
    for _ in range(2):  # deleting again succeeds
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["ApproximateNumberOfMessages"], found["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")


def test_receivers_choose_attributes_by_name_and_prefix(sqs: Any, name: str) -> None:
    url = _queue(sqs, name)
    attributes = {key: {"DataType": "String", "StringValue": key} for key in ("shop.a", "shop.b", "other")}
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)

    def chosen(*names: str) -> set[str]:
        (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=list(names), VisibilityTimeout=0)[
            "Messages"
        ]
        assert "Attributes" not in message
        return set(message.get("MessageAttributes", ()))

    assert chosen("shop.*") == {"shop.a", "shop.b"}
    assert chosen("other", "no") == {"other"}
    assert chosen() == set()


def test_a_batch_says_what_took_effect(sqs: Any, name: str) -> None:
    url = _queue(sqs, name)
    entries: list[dict[str, Any]] = [
        {"Id": "good", "MessageBody": "1"},
        {"Id": "bad", "MessageBody": "\x00"},
        {"Id": "late", "MessageBody": "2", "DelaySeconds": 900},
        {"Id": "too_late", "MessageBody": "3", "DelaySeconds": 901},
    ]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in sent["Successful"]] == ["good", "late"]
    assert {entry["Id"]: entry["Code"] for entry in sent["Failed"]} == {
        "bad": "InvalidMessageContents",
        "too_late": "InvalidParameterValue",
    }
    (message,) = _receive(sqs, url)
    entries = [
        {"Id": "a", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "b", "ReceiptHandle": "nonsense", "VisibilityTimeout": 60},
    ]
    changed = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [entry["Id"] for entry in changed["Successful"]] == ["a"]
    assert [(e["Id"], e["Code"], e["SenderFault"]) for e in changed["Failed"]] == [
        ("b", "ReceiptHandleIsInvalid", True)
    ]
    entries = [{"Id": e["Id"], "ReceiptHandle": e["ReceiptHandle"]} for e in entries]
    gone = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    assert ([e["Id"] for e in gone["Successful"]], [e["Id"] for e in gone["Failed"]]) == (["a"], ["b"])
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesDelayed"])
    assert found["Attributes"] == {"ApproximateNumberOfMessagesDelayed": "1"}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n), "MessageBody": "x"} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a", "MessageBody": "x"}] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
        ([{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)], "BatchRequestTooLong"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_batches_that_are_wrong_as_a_whole(sqs: Any, name: str, entries: Any, code: str) -> None:
    url = _queue(sqs, name)
    with pytest.raises(ClientError) as error:
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert code in (_code(error), error.value.response["Error"]["Code"].rpartition(".")[2])
    assert _receive(sqs, url) == []


def test_visibility_zero_gives_back_and_counts(sqs: Any, name: str) -> None:
    url = _queue(sqs, name)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (first,) = _receive(sqs, url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (second,) = _receive(sqs, url, WaitTimeSeconds=20)
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    with pytest.raises(ClientError) as error:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=10)
    assert error.value.response["Error"]["Code"] == "AWS.SimpleQueueService.MessageNotInflight"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])  # accepted, and without effect
    sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])


def test_a_visibility_timeout_of_zero_leaves_the_message_visible(sqs: Any, name: str) -> None:
    url = _queue(sqs, name)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    for count in ("1", "2"):
        (message,) = _receive(sqs, url, VisibilityTimeout=0, WaitTimeSeconds=20)
        assert message["Attributes"]["ApproximateReceiveCount"] == count


def test_a_fifo_queue_keeps_order_and_drops_duplicates(sqs: Any, name: str) -> None:
    url = _queue(sqs, f"{name}.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    sent = [
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
        for body, group in (("1", "a"), ("2", "a"), ("1", "a"), ("3", "b"))
    ]
    assert sent[2]["MessageId"] == sent[0]["MessageId"]
    numbers = [int(each["SequenceNumber"]) for each in (sent[0], sent[1], sent[3])]
    assert numbers == sorted(set(numbers))
    one = sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="c", MessageDeduplicationId="d")
    other = sqs.send_message(QueueUrl=url, MessageBody="another body", MessageGroupId="c", MessageDeduplicationId="d")
    assert other["MD5OfMessageBody"] != one["MD5OfMessageBody"]
    seen = []
    while messages := _receive(sqs, url):
        for message in messages:
            seen.append((message["Attributes"]["MessageGroupId"], message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert [body for group, body in seen if group == "a"] == ["1", "2"]
    assert sorted(seen) == [("a", "1"), ("a", "2"), ("b", "3"), ("c", "x")]


def test_deduplication_can_be_by_group(sqs: Any, name: str) -> None:
    url = _queue(
        sqs,
        f"{name}.fifo",
        FifoQueue="true",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    ids = {
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId=g, MessageDeduplicationId="d")["MessageId"]
        for g in ("a", "b", "a")
    }
    assert len(ids) == 2
    assert {m["Attributes"]["MessageDeduplicationId"] for m in _receive(sqs, url)} == {"d"}


@pytest.mark.parametrize(
    "message",
    [
        {"MessageBody": "x"},
        {"MessageBody": "x", "MessageGroupId": "g"},
        {"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 5},
        {"MessageBody": "x", "MessageGroupId": "g g", "MessageDeduplicationId": "d"},
    ],
    ids=["no group", "no deduplication id", "delay", "space"],
)
def test_what_a_fifo_queue_refuses(sqs: Any, name: str, message: dict[str, Any]) -> None:
    url = _queue(sqs, f"{name}.fifo", FifoQueue="true")
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=url, **message)
    assert _code(error) in ("MissingParameter", "InvalidParameterValue")


def test_late_deletion_in_a_fifo_queue_is_refused(sqs: Any, name: str) -> None:
    url = _queue(sqs, f"{name}.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    (first,) = _receive(sqs, url, VisibilityTimeout=0)
    (second,) = _receive(sqs, url, WaitTimeSeconds=20)
    with pytest.raises(ClientError) as error:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert "expired" in str(error.value)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])


def test_a_poison_message_goes_to_the_dead_letter_queue_and_back(sqs: Any, name: str, web: Web) -> None:
    dead = _queue(sqs, f"{name}-dead")
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "2"})
    url = _queue(sqs, name, RedrivePolicy=policy)
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}}
    sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=attributes)
    for _ in range(2):
        (message,) = _receive(sqs, url, WaitTimeSeconds=20)
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    (letter,) = _receive(sqs, dead, WaitTimeSeconds=20)
    sqs.change_message_visibility(QueueUrl=dead, ReceiptHandle=letter["ReceiptHandle"], VisibilityTimeout=0)
    assert letter["Body"] == "poison"
    assert letter["MessageAttributes"]["n"] == attributes["n"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{name}")
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    assert web.get(f"/v1/queues/{name}/messages?state=dead").json["messages"][0]["payload"] == "poison"

    handle = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    (again,) = _receive(sqs, url, WaitTimeSeconds=20)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("poison", "1")
    assert again["MessageAttributes"] == attributes
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    until(lambda: _task(sqs, arn)["Status"] == "COMPLETED")
    assert _task(sqs, arn)["ApproximateNumberOfMessagesMoved"] == 1
    with pytest.raises(ClientError) as error:
        sqs.cancel_message_move_task(TaskHandle=handle)
    assert _code(error) == "ResourceNotFoundException"


def test_a_move_goes_to_the_queue_that_is_named_and_can_be_cancelled(sqs: Any, name: str) -> None:
    source, target = _queue(sqs, name), _queue(sqs, f"{name}-to")
    for _ in range(2):
        sqs.send_message_batch(QueueUrl=source, Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(10)])
    arns = [
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for url in (source, target)
    ]
    handle = sqs.start_message_move_task(SourceArn=arns[0], DestinationArn=arns[1], MaxNumberOfMessagesPerSecond=1)
    with pytest.raises(ClientError) as error:
        sqs.start_message_move_task(SourceArn=arns[0], DestinationArn=arns[1])
    assert "already" in str(error.value)
    assert len(_receive(sqs, target, WaitTimeSeconds=20)) >= 1
    sqs.cancel_message_move_task(TaskHandle=handle["TaskHandle"])
    until(lambda: _task(sqs, arns[0])["Status"] == "CANCELLED")
    with pytest.raises(ClientError) as error:
        sqs.start_message_move_task(SourceArn=f"{arns[0]}-none")
    assert _code(error) == "ResourceNotFoundException"


def test_group_and_deduplication_id_are_not_mixed_up(sqs: Any, name: str) -> None:
    by_group = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    url = _queue(sqs, f"{name}.fifo", FifoQueue="true", **by_group)
    for group, id in (("c", "a/b"), ("b/c", "a")):
        sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=id)
    assert sorted(message["Body"] for message in _receive(sqs, url)) == ["b/c", "c"]


def test_a_sender_does_not_choose_where_dead_letters_go(sqs: Any, name: str, web: Web) -> None:
    dead, secret = _queue(sqs, f"{name}-dead"), _queue(sqs, f"{name}-secret")
    forged = {"tampu-dead-queue": {"DataType": "String", "StringValue": f"{name}-secret"}}
    sqs.send_message(QueueUrl=dead, MessageBody="x", MessageAttributes=forged)
    given = {"payload": "y", "headers": {"tampu-dead-queue": f"{name}-secret"}}
    web.post(f"/v1/queues/{name}-dead/publish", {"messages": [given]})
    arn = f"arn:aws:sqs:eu-west-1:000000000000:{name}-dead"
    sqs.start_message_move_task(SourceArn=arn)
    until(lambda: _task(sqs, arn)["Status"] == "FAILED")
    assert "name a DestinationArn" in _task(sqs, arn)["FailureReason"]
    assert _receive(sqs, secret) == []
    assert len(_receive(sqs, dead)) == 2  # given back


def test_headers_of_others_poison_nothing(sqs: Any, name: str, web: Web) -> None:
    url = _queue(sqs, name)
    bad = [
        '{"a":{"DataType":"String","StringValue":"x","z":' + "[" * 1900,
        '{"x":{"DataType":"Binary","BinaryValue":"a"}}',
    ]
    messages = [{"payload": "x", "headers": {"sqs-attributes.0": text}} for text in bad]
    web.post(f"/v1/queues/{name}/publish", {"messages": messages})
    assert len(_receive(sqs, url)) == 2


def test_messages_are_those_of_tampu(sqs: Any, name: str, web: Web) -> None:
    url = _queue(sqs, name)
    attributes = {"to": {"DataType": "String", "StringValue": "ada"}}
    id = sqs.send_message(QueueUrl=url, MessageBody="from sqs", MessageAttributes=attributes)["MessageId"]
    message = web.get(f"/v1/messages/{id}").json
    assert (message["payload"], message["headers"]) == ("from sqs", {"to": "ada"})
    web.post(f"/v1/queues/{name}/publish", {"messages": [{"payload": {"n": 1}, "headers": {"k": "v"}}]})
    bodies = {m["Body"]: m.get("MessageAttributes") for m in _receive(sqs, url)}
    assert json.loads(next(body for body in bodies if body.startswith("{"))) == {"n": 1}
    assert {"k": {"DataType": "String", "StringValue": "v"}} in bodies.values()
