"""Bad input of every kind: a stable code, an exit code that says whose fault it is, and nothing changed."""

import sqlite3
from pathlib import Path

import pytest

from tests.cli.run_command import Command

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"

BAD_PUBLISH = {
    "naive run_at": (["q", "1", "--run-at", "2031-01-01T10:00:00"], "invalid_message", "run_at"),
    "naive deadline": (["q", "1", "--deadline", "2031-01-01"], "invalid_message", "deadline"),
    "a time that is none": (["q", "1", "--run-at", "tomorrow"], "invalid_message", "run_at"),
    "a time before 1970": (["q", "1", "--run-at", "1950-01-01T00:00:00Z"], "invalid_message", "run_at"),
    "NaN priority": (["q", "1", "--priority", "nan"], "usage", "priority"),
    "fractional priority": (["q", "1", "--priority", "1.5"], "usage", "priority"),
    "endless priority": (["q", "1", "--priority", "inf"], "usage", "priority"),
    "huge priority": (["q", "1", "--priority", str(10**30)], "invalid_message", "priority"),
    "NaN delay": (["q", "1", "--delay", "nan"], "invalid_message", "delay"),
    "negative delay": (["q", "1", "--delay", "-5"], "invalid_message", "delay"),
    "a delay of words": (["q", "1", "--delay", "a while"], "invalid_message", "delay"),
    "a delay of centuries": (["q", "1", "--delay", "99999999w"], "invalid_message", "delay"),
    "no ttl at all": (["q", "1", "--ttl", "0"], "invalid_message", "ttl"),
    "delay and run_at": (["q", "1", "--delay", "1", "--run-at", "2100-01-01T00:00:00Z"], "invalid_message", "delay"),
    "a queue of spaces": (["a queue", "1"], "invalid_message", "queue"),
    "an empty queue name": (["", "1"], "invalid_message", "queue"),
    "a path as queue": (["../../etc", "1"], "invalid_message", "queue"),
    "a long queue name": (["q" * 129, "1"], "invalid_message", "queue"),
    "a bad tenant": (["q", "1", "--tenant", "no/slash"], "invalid_message", "tenant"),
    "a bad type": (["q", "1", "--type", "two words"], "invalid_message", "type"),
    "broken JSON": (["q", '{"a": }'], "invalid_message", "payload"),
    "half of JSON": (["q", '{"a": 1'], "invalid_message", "payload"),
    "NaN in JSON": (["q", "[NaN]"], "invalid_message", "payload"),
    "nothing": (["q", ""], "invalid_message", "payload"),
    "bottomless JSON": (["q", "[" * 100_000], "invalid_message", "payload"),
    "no payload": (["q"], "invalid_message", "payload"),
    "two payloads": (["q", "1", "--file", "x"], "invalid_message", "payload"),
    "a label of no pair": (["q", "1", "--label", "x"], "invalid_message", "label"),
    "a header of no name": (["q", "1", "--header", "=x"], "invalid_message", "header"),
    "a long label": (["q", "1", "--label", "x=" + "y" * 3000], "invalid_message", "labels"),
    "a label twice": (["q", "1", "--label", "a=1", "--label", "b=2", "--label", "a=3"], "invalid_message", "label"),
    "a header twice": (["q", "1", "--header", "a=1", "--header", " a=1"], "invalid_message", "header"),
    "an empty key": (["q", "1", "--key", ""], "invalid_message", "key"),
    "no attempts": (["q", "1", "--max-attempts", "0"], "invalid_message", "max_attempts"),
    "attempts of words": (["q", "1", "--max-attempts", "many"], "usage", "max_attempts"),
    "an id that is none": (["q", "1", "--id", "7"], "invalid_message", "id"),
    "a content type that is none": (["q", "1", "--content-type", "x"], "invalid_message", "content_type"),
    "a file that is not there": (["q", "--file", "nope.json"], "invalid_message", "file"),
    "a folder as file": (["q", "--file", "."], "invalid_message", "file"),
    "lines of a missing file": (["q", "--lines", "--file", "nope"], "invalid_message", "file"),
    "an unknown option": (["q", "1", "--colour", "red"], "usage", None),
    "no queue": ([], "usage", "queue"),
    "bytes that are no text": (["q", "--text", "\udcff"], "invalid_message", "payload"),
    "bytes that are no JSON": (["q", '"\udcff"'], "invalid_message", "payload"),
}


@pytest.mark.parametrize("case", BAD_PUBLISH)
def test_publish_refuses(command: Command, case: str) -> None:
    words, code, field = BAD_PUBLISH[case]
    answer = command("--json", "publish", *words)
    assert (answer.code, answer.error["code"], answer.error["field"]) == (2, code, field)
    assert answer.out == ""
    assert not command.path.exists(), "bad input made a file"
    human = command("publish", *words)
    assert human.code == 2
    assert human.err.startswith(f"error [{code}]: ")
    assert len(human.err.splitlines()) <= 2


def test_broken_json_says_where_and_what_to_do(command: Command) -> None:
    answer = command("publish", "q", '{"a": 1,\n "b": oops}')
    assert "line 2, column 7" in answer.err
    assert "hint: " in answer.err
    assert "--text" in answer.err


def test_a_payload_of_10_mb_is_too_large_however_it_comes(command: Command) -> None:
    big = '"' + "x" * 10_000_000 + '"'
    Path("big.json").write_text(big)
    for words, stdin in ((["-"], big), (["--file", "big.json"], None), (["--lines", "--file", "big.json"], None)):
        answer = command("--json", "publish", "q", *words, input=stdin)
        assert (answer.code, answer.error["code"]) == (2, "payload_too_large")
        assert len(answer.err) < 1000
    assert not command.path.exists()


BAD_OTHERS = {
    "stats of an unknown queue": (["stats", "nope"], 3, "not_found"),
    "list of an unknown queue": (["list", "nope"], 3, "not_found"),
    "peek at an unknown queue": (["peek", "nope"], 3, "not_found"),
    "pause of an unknown queue": (["pause", "nope"], 3, "not_found"),
    "purge of an unknown queue": (["purge", "nope", "--state", "dead"], 3, "not_found"),
    "replay of an unknown queue": (["replay", "nope", "--all"], 3, "not_found"),
    "show of nobody": (["show", NOBODY], 3, "not_found"),
    "show of no id": (["show", "7"], 2, "invalid_message"),
    "free of nobody": (["free", NOBODY], 3, "not_found"),
    "cancel of no id": (["cancel", "x"], 2, "invalid_message"),
    "dry cancel of no id": (["cancel", "x", "--dry-run"], 2, "invalid_message"),
    "list of a bad name": (["list", "a b"], 2, "invalid_message"),
    "list of a state that is none": (["list", "q", "--state", "tired"], 2, "usage"),
    "list by a field that is none": (["list", "q", "--where", "size=3"], 2, "invalid_message"),
    "list by a naive time": (["list", "q", "--where", "created_after=2020-01-01"], 2, "invalid_message"),
    "list by half a pair": (["list", "q", "--where", "type"], 2, "invalid_message"),
    "list after no cursor": (["list", "q", "--after", "!!"], 2, "invalid_message"),
    "list of none": (["list", "q", "--limit", "0"], 2, "invalid_message"),
    "claim of a bad name": (["claim", "a b"], 2, "invalid_message"),
    "claim of none": (["claim", "q", "--limit", "0"], 2, "invalid_message"),
    "claim for no time": (["claim", "q", "--lease", "0"], 2, "invalid_message"),
    "claim for a NaN": (["claim", "q", "--lease", "nan"], 2, "invalid_message"),
    "ack of no receipt": (["ack", "nonsense"], 2, "invalid_message"),
    "ack of a garbled receipt": (["ack", "q/zz.yy"], 2, "invalid_message"),
    "ack of a made-up receipt": (["ack", "q/123.456"], 4, "lease_lost"),
    "ack with a broken result": (["ack", "q/123.456", "--result", "{"], 2, "invalid_message"),
    "nack with a bad delay": (["nack", "q/123.456", "--delay", "x"], 2, "invalid_message"),
    "purge without a state": (["purge", "q"], 2, "usage"),
    "journal of the future": (["journal", "--after", "-1"], 2, "invalid_message"),
    "a setting twice": (["config", "q", "lease=1", "lease=2"], 2, "invalid_config"),
    "a part of a backoff twice": (["config", "q", "backoff=linear:base=1,base=2"], 2, "invalid_config"),
    "a label of a schedule twice": (
        ["schedule", "add", "s", "1", "--queue", "q", "--every", "1h", "--label", "a=1", "--label", "a=2"],
        2,
        "invalid_message",
    ),
    "an option of the lake twice": (
        ["sql", "SELECT 1", "--option", "a=1", "--option", "a=2", "--lake", "x"],
        2,
        "invalid_config",
    ),
    "a command that is none": (["publsh", "q"], 2, "usage"),
    "no command": (["--tenant", "x"], 2, "usage"),
}


@pytest.mark.parametrize("case", BAD_OTHERS)
def test_others_refuse_and_change_nothing(command: Command, case: str) -> None:
    words, exit_code, code = BAD_OTHERS[case]
    command.ok("publish", "q", "1")
    before = command.fingerprint()
    answer = command("--json", *words)
    assert (answer.code, answer.error["code"]) == (exit_code, code)
    assert answer.out == ""
    assert command(*words).err.startswith(f"error [{code}]: ")
    assert command.fingerprint() == before


READERS = [
    ["claim", "q"], ["ack", "q/1.2"], ["nack", "q/1.2"], ["reject", "q/1.2"], ["release", "q/1.2"], ["extend", "q/1.2"],
    ["peek", "q"], ["show", NOBODY], ["list", "q"], ["stats"], ["queues"], ["config", "q"], ["config", "*"],
    ["pause", "q"], ["resume", "q"], ["drain", "q"], ["close", "q"], ["cancel", NOBODY], ["free", NOBODY],
    ["replay", "q", "--all"],     ["purge", "q", "--state", "dead"], ["journal"],
]  # fmt: skip


@pytest.mark.parametrize("words", READERS, ids=lambda words: " ".join(words[:1]))
def test_a_missing_file_is_exit_5_and_is_not_made(command: Command, words: list[str]) -> None:
    answer = command("--json", *words)
    assert (answer.code, answer.error["code"]) == (5, "unavailable")
    assert "publish" in answer.error["hint"]
    assert list(command.path.parent.iterdir()) == []


@pytest.mark.parametrize("words", [["stats"], ["publish", "q", "1"], ["config", "q", "lease=1"], ["demo", "--fast"]])
def test_a_foreign_file_is_exit_5_and_is_left(command: Command, words: list[str]) -> None:
    command.path.write_text("my diary\n" * 20)
    answer = command("--json", *words, "--url", "jobs.db")
    assert (answer.code, answer.error["code"]) == (5, "foreign_file")
    with sqlite3.connect("theirs.db") as db:
        db.execute("CREATE TABLE theirs (a)")
    db.close()
    assert command("--json", *words, "--url", "theirs.db").error["code"] == "foreign_file"
    assert command.path.read_text() == "my diary\n" * 20


@pytest.mark.parametrize(
    ("scheme", "right"),
    [
        ("mysql", "mariadb"), ("mysql+pymysql", "mariadb"), ("postgresql+psycopg", "postgresql"),
        ("postgres+asyncpg", "postgresql"), ("mariadb+x", "mariadb"), ("valkey", "redis"), ("valkeys", "rediss"),
        ("valkey+cluster", "redis+cluster"),
    ],
)  # fmt: skip
def test_a_scheme_of_other_tools_is_refused_with_the_right_one(command: Command, scheme: str, right: str) -> None:
    answer = command("--json", "publish", "q", "1", "--url", f"{scheme}://me:secret@localhost/jobs?charset=utf8")
    assert (answer.code, answer.error["code"], answer.error["field"]) == (2, "invalid_config", "url")
    assert answer.error["hint"] == f"write {right}://"
    assert "secret" not in answer.err


@pytest.mark.parametrize("scheme", ["sqlite+y", "memory+x", "oracle", "redis+anything"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(command: Command, scheme: str) -> None:
    answer = command("--json", "publish", "q", "1", "--url", f"{scheme}:///jobs.db")
    assert (answer.code, answer.error["code"], answer.error["field"]) == (2, "invalid_config", "url")
    assert "redis://" in answer.error["hint"]


def test_a_folder_or_a_missing_folder_is_exit_5(command: Command) -> None:
    for url, code in ((".", "foreign_file"), ("no/such/jobs.db", "unavailable")):
        answer = command("--json", "publish", "q", "1", "--url", url)
        assert (answer.code, answer.error["code"]) == (5, code)


def test_an_empty_file_is_not_taken_for_a_queue(command: Command) -> None:
    command.path.touch()
    answer = command("stats")
    assert answer.code == 5
    assert "is empty" in answer.err
    assert command.path.stat().st_size == 0


def test_a_payload_file_that_cannot_be_read_is_exit_2(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("loop").symlink_to("loop")  # not even root can read it
    for words in (["--file", "loop"], ["--file", "loop", "--lines"], ["--file", "loop", "--text"]):
        answer = command("--json", "publish", "q", *words)
        assert (answer.code, answer.error["code"], answer.error["field"]) == (2, "invalid_message", "file")
    assert not command.path.exists()


def test_a_store_that_cannot_be_read_is_exit_5(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command.ok("publish", "q", "1")
    before = command.fingerprint()
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda path, _mode: not str(path).endswith("jobs.db"))  # as for another user
        for words in (["stats"], ["publish", "q", "2"], ["claim", "q"]):
            answer = command("--json", *words)
            assert (answer.code, answer.error["code"]) == (5, "unavailable")
            assert "permission" in answer.error["message"]
        assert command("doctor").code == 1
    assert command.fingerprint() == before


def test_a_full_disk_is_exit_5(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import tampu

    def full(*_: object, **__: object) -> None:
        raise tampu.StorageFull("the disk is full; nothing was stored", hint="make room and call again")

    command.ok("publish", "q", "1")
    monkeypatch.setattr(tampu.Store, "publish", full)
    answer = command("--json", "publish", "q", "1")
    assert (answer.code, answer.error["code"]) == (5, "storage_full")


def test_an_option_without_its_value_names_the_help_of_its_command(command: Command) -> None:
    assert command("--json", "claim", "q", "--wait").error["hint"] == "see tampu claim --help"
    assert command("--json", "--url").error["hint"] == "see tampu --help"
