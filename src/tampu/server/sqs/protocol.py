"""The two encodings of SQS: AWS JSON 1.0, which SDKs of today speak, and the query protocol of older ones (forms, XML).

Actions see neither: they get parameters as the JSON protocol has them, and answer with what it would answer.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Protocol
from xml.sax.saxutils import escape

import msgspec

from tampu.model.decoders import from_json
from tampu.server.http.request import HttpRequest, Reply
from tampu.server.sqs.errors import SqsError
from tampu.server.sqs.message_attributes import is_text

JSON_TYPE = "application/x-amz-json-1.0"
_FORM = b"application/x-www-form-urlencoded"
_TARGET = b"AmazonSQS."
_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_MOST_FIELDS = 2000
_DEEPEST = 8
_read_json = from_json(dict[str, Any]).decode


class Encoding(Protocol):
    def read(self, request: HttpRequest, body: bytes) -> tuple[str, dict[str, Any]]:
        """(the action, its parameters)"""
        ...

    def write(self, action: str, result: dict[str, Any], request_id: str) -> Reply: ...

    def refuse(self, error: SqsError, request_id: str) -> Reply: ...


def encoding_of(request: HttpRequest) -> Encoding:
    return Query() if request.headers.get(b"content-type", b"").startswith(_FORM) else Json()


class Json:
    def read(self, request: HttpRequest, body: bytes) -> tuple[str, dict[str, Any]]:
        target = request.headers.get(b"x-amz-target", b"")
        if not target.startswith(_TARGET):
            raise SqsError("InvalidAction", "send X-Amz-Target: AmazonSQS. and the action, or a form with Action")
        try:
            return target[len(_TARGET) :].decode("latin-1"), _read_json(body or b"{}")
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SqsError("SerializationException", f"the body is not a JSON object: {error}") from None

    def write(self, action: str, result: dict[str, Any], request_id: str) -> Reply:  # noqa: ARG002 - SDKs of JSON take both from the request
        return Reply(200, msgspec.json.encode(result), JSON_TYPE, {"x-amzn-requestid": request_id})

    def refuse(self, error: SqsError, request_id: str) -> Reply:
        body = {"__type": f"com.amazonaws.sqs#{error.code}", "message": error.message}
        fault = "Sender" if error.is_senders else "Receiver"
        headers = {"x-amzn-requestid": request_id, "x-amzn-query-error": f"{error.query_code};{fault}"}
        return Reply(error.status, msgspec.json.encode(body), JSON_TYPE, headers)


# -- forms and XML

_LISTS = {
    "AttributeName": "AttributeNames", "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "MessageAttributeName": "MessageAttributeNames", "TagKey": "TagKeys", "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions", "SendMessageBatchRequestEntry": "Entries", "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}  # fmt: skip
"""Names of forms, which are numbered (``AttributeName.1``), and those of JSON."""
_MAPS = {
    "Attribute": ("Attributes", "Name"), "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"), "Tag": ("Tags", "Key"),
}  # fmt: skip
"""The same for maps, with the name of the key (``Attribute.1.Name``)."""
_ELEMENTS = {
    "Messages": "Message", "QueueUrls": "QueueUrl", "queueUrls": "QueueUrl", "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}  # fmt: skip


class Query:
    def read(self, request: HttpRequest, body: bytes) -> tuple[str, dict[str, Any]]:  # noqa: ARG002 - all is in the body
        try:
            pairs = urllib.parse.parse_qsl(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
            )
        except ValueError:
            raise SqsError("MalformedQueryString", f"the body is no form of at most {_MOST_FIELDS} fields") from None
        tree: dict[str, Any] = {}
        for name, value in pairs:
            _plant(tree, name.split("."), value)
        action = tree.pop("Action", "")
        tree.pop("Version", None)
        return str(action), _as_json(tree)

    def write(self, action: str, result: dict[str, Any], request_id: str) -> Reply:
        inner = "".join(_element(action, name, value) for name, value in result.items())
        found = f"<{action}Result>{inner}</{action}Result>" if result else ""
        return _xml(
            200,
            f'<{action}Response xmlns="{_NAMESPACE}">{found}'
            f"<ResponseMetadata><RequestId>{escape(request_id)}</RequestId></ResponseMetadata></{action}Response>",
            request_id,
        )

    def refuse(self, error: SqsError, request_id: str) -> Reply:
        fault = "Sender" if error.is_senders else "Receiver"
        return _xml(
            error.status,
            f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{fault}</Type><Code>{escape(error.query_code)}</Code>'
            f"<Message>{escape(_clean(error.message))}</Message></Error>"
            f"<RequestId>{escape(request_id)}</RequestId></ErrorResponse>",
            request_id,
        )


def _xml(status: int, text: str, request_id: str) -> Reply:
    body = f'<?xml version="1.0"?>{text}'.encode()
    return Reply(status, body, "text/xml", {"x-amzn-requestid": request_id})


def _plant(tree: dict[str, Any], path: list[str], value: str) -> None:
    """Put a field such as ``Tag.1.Key`` into the tree."""
    if len(path) > _DEEPEST:
        raise SqsError("MalformedQueryString", f"{'.'.join(path):.100} is nested too deep")
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise SqsError("MalformedQueryString", f"{'.'.join(path):.100} is both a value and a structure")
    tree[path[-1]] = value


def _as_json(tree: Any) -> Any:
    """The parameters as the JSON protocol has them."""
    if not isinstance(tree, dict):
        return tree
    made: dict[str, Any] = {}
    for name, value in tree.items():
        if name in _LISTS and isinstance(value, dict):
            made[_LISTS[name]] = [_as_json(each) for each in _numbered(value)]
        elif name in _MAPS and isinstance(value, dict):
            to, key = _MAPS[name]
            found = [each for each in _numbered(value) if isinstance(each, dict)]
            made[to] = {str(each.get(key, "")): _as_json(each.get("Value", "")) for each in found}
        elif name == "Attribute":  # `Attribute.Name=…` without a number, as some clients send one alone
            made[name] = value
        else:
            made[name] = _as_json(value)
    return made


def _numbered(entries: dict[str, Any]) -> list[Any]:
    if all(isinstance(entry, str) for entry in entries.values()) and not all(name.isdigit() for name in entries):
        return [entries]  # without a number
    return [entries[name] for name in sorted(entries, key=lambda name: (len(name), name))]


def _element(action: str, name: str, value: Any) -> str:
    if name == "Successful":
        name = f"{action}ResultEntry"
    elif isinstance(value, dict):
        return _map(action, name, value)
    else:
        name = _ELEMENTS.get(name, name)
    return "".join(
        f"<{name}>{_content(action, each)}</{name}>" for each in (value if isinstance(value, list) else [value])
    )


def _map(action: str, name: str, value: dict[str, Any]) -> str:
    if name in ("Attributes", "Tags", "MessageAttributes"):
        key = "Key" if name == "Tags" else "Name"
        return "".join(
            f"<{name[:-1]}><{key}>{escape(_clean(k))}</{key}><Value>{_content(action, v)}</Value></{name[:-1]}>"
            for k, v in value.items()
        )
    return f"<{name}>{_content(action, value)}</{name}>"


def _content(action: str, value: Any) -> str:
    if isinstance(value, dict):
        return "".join(_element(action, name, each) for name, each in value.items())
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(_clean(str(value)), {"\r": "&#13;"})


def _clean(text: str) -> str:
    """Without the characters that XML does not have. Nothing that came in over SQS has them."""
    return text if is_text(text) else "".join(c if is_text(c) else "\ufffd" for c in text)
