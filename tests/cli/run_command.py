"""Runs the command as a user would, and reads its answers."""

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer import testing
from typer.main import get_command

import tampu
from tampu.cli.main import app

# The runner builds all commands anew for each call, which takes three times as long as the call.
testing._get_command = functools.cache(get_command)  # type: ignore[attr-defined]  # there is no public way


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def error(self) -> Any:
        """The one JSON error on standard error."""
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


@dataclass(frozen=True)
class Command:
    path: Path

    def __call__(self, *args: str, input: str | bytes | None = None) -> Answer:
        result = testing.CliRunner().invoke(app, list(args), input=input, prog_name="tampu")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def ok(self, *args: str, input: str | bytes | None = None) -> Any:
        """The document of a call that must succeed."""
        answer = self(*args, "--json", input=input)
        assert answer.code == 0, answer
        return answer.document

    def queue(self, **options: Any) -> tampu.Store:
        """The library on the same file."""
        return tampu.open(self.path, maintenance=False, **options)

    def dead(self, queue: str, count: int = 1, **options: Any) -> list[str]:
        """Messages that have died, with an error; their ids."""
        with self.queue() as store:
            for n in range(count):
                store.publish(queue, {"n": n}, **options)
            leases = store.claim(queue, limit=count)
            for lease in leases:
                store.reject(lease, reason="broken", error=ValueError(f"no {lease.payload['n']}"))
        return [lease.id for lease in leases]

    def fingerprint(self) -> str:
        """Everything the store says of itself: the same, if nothing was changed."""
        if not self.path.exists():
            return "no file"
        with self.queue() as store:
            said = [repr((s.queue, s.counts, s.status)) for s in store.stats()]
            said.append(repr(store.journal(limit=100_000).transitions))
            said += [repr(store.queues.get(name, inherited=False)) for name in (*store.queues.list(), "*")]
        return hashlib.blake2b("".join(said).encode()).hexdigest()
