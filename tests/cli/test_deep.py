"""Payloads and results that are nested more deeply than JSON is read here: shown in base64, and in nobody's way."""

import base64

import msgspec
import pytest

import tampu
from tests.cli.run_command import Command

DEPTHS = [700, 900, 940, 960, 970, 980, 990, 1000, 5000]
"""Where reading ends depends on who reads; around it a value may be read and not be written."""


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.fixture
def ids(command: Command) -> list[str]:
    with command.queue() as store:
        made = [store.publish("q", nested(depth), content_type="application/json").id for depth in DEPTHS]
        return [*made, store.publish("q", "shallow").id]


def test_list_and_peek_show_the_others(command: Command, ids: list[str]) -> None:
    for words in (["list", "q"], ["peek", "q"]):
        assert [m["id"] for m in command.ok(*words)["messages"]] == ids
        answer = command(*words)
        assert (answer.code, "shallow" in answer.out) == (0, True)


def test_what_was_claimed_is_printed(command: Command, ids: list[str]) -> None:
    leases = command.ok("claim", "q", "--limit", "20")["leases"]
    deep = leases[-2]["message"]
    assert deep["payload"] is None
    assert base64.b64decode(deep["payload_base64"]) == nested(DEPTHS[-1])
    assert leases[-1]["message"]["payload"] == "shallow"
    command.ok("release", *(lease["receipt"] for lease in leases))
    answer = command("claim", "q", "--limit", "20")
    assert answer.code == 0
    assert answer.out.count("receipt ") == len(ids)
    assert "the payload is shown in base64: " in answer.err


def test_show_tells_them_one_by_one(command: Command, ids: list[str]) -> None:
    for id in ids:
        assert command("show", id, "--no-history").code == 0
        assert command.ok("show", id, "--no-history")["id"] == id


def test_a_deep_result_is_shown(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    id = command.ok("publish", "q", "1")["id"]
    receipt = command.ok("claim", "q")["leases"][0]["receipt"]
    command.ok("ack", receipt, "--result", "[[1]]")
    assert command.ok("show", id)["result"] == [[1]]
    deep = b"\x91" * 5000 + b"\x01"
    found = tampu.Store.get

    def get(store: tampu.Store, id: str) -> tampu.Message:
        return msgspec.structs.replace(found(store, id), result_raw=deep)

    monkeypatch.setattr(tampu.Store, "get", get)
    shown = command.ok("show", id)
    assert (shown["result"], base64.b64decode(shown["result_base64"])) == (None, deep)
    assert command("show", id).code == 0
