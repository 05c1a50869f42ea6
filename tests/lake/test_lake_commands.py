"""The commands that ask the lake and act on it, as a user runs them."""

import csv
import io
import json
from pathlib import Path

import pytest

import tampu
from tampu.cli.session import hidden
from tests.cli.run_command import Command
from tests.lake import sample


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    for name in ("TAMPU_TENANT", "TAMPU_LAKE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAMPU_URL", "jobs.db")
    monkeypatch.setenv("COLUMNS", "200")
    return Command(tmp_path / "jobs.db")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Beside the file, where it is looked for."""
    folder = tmp_path / "jobs.lake"
    rows = [sample.ended(n) for n in range(1, 13)]
    rows[3] |= {"queue": "emails", "labels": {"a": "ü"}, "last_error": "\x1b[31mred\x1b[0m\nnext"}
    sample.write(folder, "bronze.messages", [*rows, sample.ended(20, tenant="other")])
    return folder


# -- sql


def test_sql_prints_a_table_without_control_characters(command: Command, lake: Path):
    answer = command("sql", "SELECT id, labels, payload, last_error FROM bronze.messages WHERE queue = 'emails'")
    assert answer.code == 0, answer
    assert '{"a":"ü"}' in answer.out
    assert '{"n":4}' in answer.out
    assert "\x1b[31m" not in answer.out
    assert "1 row\n" in answer.err


def test_sql_json_and_csv_are_for_scripts(command: Command, lake: Path):
    query = "SELECT queue, count(*) AS n FROM bronze.messages GROUP BY queue ORDER BY n"
    assert command.ok("sql", query) == {
        "columns": ["queue", "n"],
        "rows": [["emails", 1], ["orders", 12]],
        "more": False,
    }
    rows = list(csv.reader(io.StringIO(command("sql", query, "--csv").out)))
    assert rows == [["queue", "n"], ["emails", "1"], ["orders", "12"]]
    assert command("sql", query, "--csv", "--json").code == 2


def test_sql_limit_cuts_and_says_so(command: Command, lake: Path):
    found = command.ok("sql", "FROM bronze.messages", "--limit", "2")
    assert (len(found["rows"]), found["more"]) == (2, True)
    assert "--limit" in command("sql", "SELECT id FROM bronze.messages", "--limit", "2", "--csv").err
    assert len(command.ok("sql", "FROM range(3000)", "--limit", "0")["rows"]) == 3000


def test_sql_of_one_tenant(command: Command, lake: Path):
    found = command.ok("sql", "SELECT DISTINCT tenant FROM bronze.messages", "--tenant", "other")
    assert found["rows"] == [["other"]]


def test_storage_options_are_pairs(command: Command, lake: Path):
    assert command.ok("sql", "SELECT 1", "--option", "AWS_REGION=eu", "--option", "spark.scheme=s3a")["rows"] == [[1]]
    assert command("sql", "SELECT 1", "--option", "AWS_REGION").code == 2


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT * FRM x", 2), ("DROP VIEW bronze.messages", 2), ("SELECT * FROM '/etc/passwd'", 2), ("", 2),
        ("EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", 2), ("EXPLAIN ANALYZE DROP VIEW bronze.messages", 2),
    ],
)  # fmt: skip
def test_sql_errors_fit_in_a_line(query: str, code: int, command: Command, lake: Path):
    answer = command("sql", query)
    assert answer.code == code
    assert answer.err.count("error [") == 1
    assert command("sql", query, "--json").error["code"] == "invalid_message"


def test_sql_reads_the_query_from_a_pipe(command: Command, lake: Path):
    assert command.ok("sql", input="SELECT 1 AS one")["rows"] == [[1]]


def test_sql_prompt_goes_on_after_an_error(command: Command, lake: Path, monkeypatch: pytest.MonkeyPatch):
    lines = iter(["SELECT *", "FRM x;", "", "\\d", "SELECT 40 +", "2 AS answer;", "exit"])
    monkeypatch.setattr("tampu.cli.streams.is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _prompt: next(lines))
    answer = command("sql")
    assert answer.code == 0
    assert "error [invalid_message]" in answer.err
    assert "gold.queue_minutes" in answer.out
    assert "42" in answer.out


def test_missing_lake_says_what_to_do(command: Command):
    for words in (("sql", "SELECT 1"), ("insights",), ("export", "gold.slo", "--to", "x.csv")):
        answer = command(*words)
        assert answer.code == 3
        assert "tampu pipeline run" in answer.err


# -- export


def test_export_writes_and_refuses_to_overwrite(command: Command, lake: Path, tmp_path: Path):
    words = ("export", "bronze.messages", "--to", "out.jsonl", "--where", "queue = 'orders'")
    done = command.ok(*words)
    assert (done["rows"], done["bytes"]) == (12, (tmp_path / "out.jsonl").stat().st_size)
    again = command(*words)
    assert (again.code, "--force" in again.err) == (1, True)
    assert command(*words, "--force", "--tenant", "other").out.startswith("1 rows in out.jsonl")
    assert [json.loads(line)["tenant"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["other"]


# -- insights


def test_insights_in_the_terminal_and_as_json(command: Command, tmp_path: Path):
    sample.busy(tmp_path / "jobs.lake", days=2, error="\x1b[31mTimeoutError: no answer")
    answer = command("insights")
    assert answer.code == 0, answer
    for words in ("Queues", "What fails", "Slowest tasks", "Workers", "Objectives", "Busiest hours", "emails", "█"):
        assert words in answer.out
    assert "\x1b[31m" not in answer.out
    found = command.ok("insights", "--days", "1")
    assert [row["queue"] for row in found["queues"]] == ["orders", "emails", "reports"]
    assert found["days"] == 1
    assert command("insights", "--days", "0").code == 2


def test_insights_writes_a_report_and_opens_it(
    command: Command, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or False)  # type: ignore[func-returns-value]  # to note it
    answer = command("insights", "--html", "report.html", "--open")
    assert (answer.code, "report written to report.html" in answer.out) == (0, True)
    assert opened == [(tmp_path / "report.html").as_uri()]
    assert "no browser" in answer.err


# -- replay


def make_store(command: Command) -> None:
    with command.queue() as store:
        store.queues.put("orders")


def test_replay_shows_first_and_needs_a_yes(command: Command, lake: Path):
    make_store(command)
    words = ("replay", "--from-lake", "--where", "state = 'dead'", "--replay-id", "r1")
    shown = command(*words, "--dry-run")
    assert shown.code == 0
    for part in ("12 messages would be published again", "11 of orders", "1 of emails", "ValueError: no 1"):
        assert part in shown.out
    refused = command(*words)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert command.queue().stats("orders").depth == 0
    done = command.ok(*words, "--yes", "--rate", "100000/s")
    assert (done["new"], done["already"], done["replay_id"]) == (12, 0, "r1")
    again = command(*words, "--yes")
    assert "0 messages published" in again.out


def test_replay_of_a_queue_into_another(command: Command, lake: Path):
    make_store(command)
    words = ("replay", "orders", str(sample.ended(2)["id"]), str(sample.ended(4)["id"]), "--from-lake")
    assert command.ok(*words, "--queue", "second", "--dry-run")["queues"] == {"orders": 1}
    assert command.ok(*words, "--queue", "second", "--yes")["new"] == 1
    with command.queue() as store:
        (message,) = store.messages("second")
    assert message.causation_id == sample.ended(2)["id"]


def test_replay_stays_in_its_tenant(command: Command, lake: Path):
    make_store(command)
    assert command.ok("replay", "--from-lake", "--all", "--yes", "--tenant", "other")["new"] == 1
    with tampu.open(command.path, tenant="other", maintenance=False) as store:
        assert store.stats("orders").depth == 1


def test_replay_tells_what_a_queue_refused(command: Command, lake: Path):
    make_store(command)
    with command.queue() as store:
        store.queues.put("emails", max_payload=1)
    answer = command("replay", "--from-lake", "--all", "--yes", "--replay-id", "r1")
    assert answer.code == 1
    assert "11 messages published" in answer.out
    assert f"{sample.ended(4)['id']}  the payload has" in answer.out


@pytest.mark.parametrize(
    "words",
    [
        ("--from-lake",),
        ("--from-lake", "--where", "nosuch = 1", "--yes"),
        ("--from-lake", "--where", "true) OR (true", "--yes"),
        ("--from-lake", "--all", "--rate", "fast", "--yes"),
        ("orders", "--all", "--rate", "5"),
        (),
    ],
)
def test_replay_with_bad_options_changes_nothing(words: tuple[str, ...], command: Command, lake: Path):
    make_store(command)
    before = command.fingerprint()
    assert command("replay", *words).code == 2
    assert command.fingerprint() == before


@pytest.mark.parametrize(
    "url",
    [
        "mariadb://app@db/jobs?index=redis%3A%2F%2F%3As3cret%40cache%3A6379%2F0&schema=s",
        "mariadb://app:s3cret@db/jobs?index=redis://:s3cret@cache:6379/0",
        "postgresql://host/db?user=me&password=s3cret",
        "postgresql://me:s3cret?@host/db",
    ],
)
def test_a_url_is_shown_without_passwords_also_of_urls_inside_it(url: str):
    assert "s3cret" not in hidden(url)
    assert hidden(hidden(url)) == hidden(url)
