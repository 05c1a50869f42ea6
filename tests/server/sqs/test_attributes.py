"""Message attributes: whatever they are, they survive in headers, and their digest is that of SQS."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from moto.sqs.models import Message as MotoMessage

from tampu.broker.validate import pairs
from tampu.server.sqs import message_attributes
from tampu.server.sqs.message_attributes import Value

_names = st.from_regex(r"[A-Za-z0-9_\-]{1,20}(\.[A-Za-z0-9_\-]{1,20}){0,2}", fullmatch=True).filter(
    lambda name: not name.lower().startswith(("aws.", "amazon."))
)
_texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=600
)
_values = st.one_of(
    _texts.map(lambda text: {"DataType": "String", "StringValue": text}),
    st.just({"DataType": "String", "StringValue": "long " * 1000}),
    st.integers().map(lambda number: {"DataType": "Number", "StringValue": str(number)}),
    st.binary(min_size=1, max_size=600).map(
        lambda data: {"DataType": "Binary.x", "BinaryValue": base64.b64encode(data).decode()}
    ),
)


@given(st.dictionaries(_names, _values, min_size=1, max_size=10))
def test_any_attributes_come_back(given: dict[str, Any]) -> None:
    checked = message_attributes.checked(given)
    headers = pairs(message_attributes.to_headers(checked, {}), "headers") or {}
    assert message_attributes.of_headers(headers) == (checked, None)


@given(st.dictionaries(_names, _values, min_size=1, max_size=10))
def test_the_digest_is_what_another_implementation_computes(given: dict[str, Any]) -> None:
    theirs = MotoMessage("id", "body")
    theirs.message_attributes = {
        attribute: value | {"BinaryValue": base64.b64decode(value["BinaryValue"])} if "BinaryValue" in value else value
        for attribute, value in given.items()
    }
    assert message_attributes.digest(message_attributes.checked(given)) == theirs.attribute_md5


@given(st.dictionaries(st.text(max_size=50), st.text(max_size=50), max_size=10))
def test_headers_of_others_are_text_attributes(headers: dict[str, str]) -> None:
    found, _ = message_attributes.of_headers(headers)
    for name, value in found.items():
        if not name.startswith("sqs-attributes."):
            assert value == Value("String", headers[name])
