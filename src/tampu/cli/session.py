"""The session given to each subcommand: which store, how to print, and how to open the store."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tampu
from tampu.cli.output import Output

DEFAULT_URL = "tampu.db"
TOKEN = "TAMPU_TOKEN"


def _command() -> str:
    """How the user calls this command: by name, or by path if the shell would not find it."""
    path = Path(sys.argv[0])
    if path.name != "tampu" or not path.is_file() or shutil.which("tampu"):
        return "tampu"
    here = Path.cwd()
    return str(path.absolute().relative_to(here)) if path.absolute().is_relative_to(here) else str(path)


def hidden(url: str) -> str:
    """A url without passwords, also without those of urls in its options."""
    address, mark, query = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1@", url).partition("?")
    return address + mark + "&".join(map(_without_secret, query.split("&")))


def _without_secret(option: str) -> str:
    name, mark, value = option.partition("=")
    if "pass" in name.lower():
        return f"{name}{mark}***"
    decoded = urllib.parse.unquote(value)
    shown = hidden(decoded) if "://" in decoded else decoded
    if shown == decoded:
        return option
    return f"{name}{mark}{urllib.parse.quote(shown, safe='')}"


@dataclass(frozen=True)
class Session:
    url: str | None
    """As given on the command line."""
    tenant: str | None
    json: bool
    token: str | None = None
    """The key for a server, as given on the command line."""

    def with_options(self, *, url: str | None, tenant: str | None, token: str | None, json: bool) -> Session:
        """With the global options given after the name of the subcommand."""
        return replace(
            self,
            url=url or self.url,
            tenant=tenant or self.tenant,
            token=token or self.token,
            json=json or self.json,
        )

    @contextlib.contextmanager
    def token_in_use(self) -> Iterator[None]:
        """The environment has the token in this block, so that every part of tampu and child processes use it."""
        before = os.environ.get(TOKEN)
        if self.token is not None:
            os.environ[TOKEN] = self.token
        try:
            yield
        finally:
            if self.token is not None:
                os.environ.pop(TOKEN)
                if before is not None:
                    os.environ[TOKEN] = before

    @cached_property
    def out(self) -> Output:
        return Output(json=self.json)

    @property
    def store(self) -> str:
        """The url in use: of the option, the environment, or the default."""
        return self.url or os.environ.get("TAMPU_URL") or DEFAULT_URL

    @property
    def remote(self) -> bool:
        """True if the store is a tampu server."""
        return self.store.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """The url to show, without passwords."""
        return hidden(self.store)

    @property
    def path(self) -> Path | None:
        """The file of the store; None if it is not a file."""
        scheme, separator, rest = self.store.partition("://")
        if not separator:
            return Path(self.store)
        if scheme != "sqlite":
            return None
        return Path(urllib.parse.unquote(rest.partition("?")[0].removeprefix("/")))

    def is_new(self) -> bool:
        """True if the file does not exist or is empty: opening would create the store."""
        path = self.path
        try:
            return path is not None and (not path.exists() or (path.is_file() and not path.stat().st_size))
        except (OSError, ValueError):
            return False  # opening it reports the error

    def open(self, *, maintenance: bool = False) -> tampu.Store:
        """Open the store, which must exist."""
        self.check_exists()
        return self._open(self.store, maintenance=maintenance)

    def check_exists(self) -> None:
        """Refuse a file that does not exist yet."""
        self._check_token()
        if self.path is not None and self.is_new():
            raise tampu.Unavailable(
                f"there is no store in {self.path}: the file {'is empty' if self.path.exists() else 'does not exist'}",
                field="url",
                hint=f"create it with: {self.command_line('publish', 'QUEUE', 'PAYLOAD')}; or name another with --url",
            )

    def open_or_create(
        self, first: Callable[[tampu.Store], Any] | None = None, *, maintenance: bool = False
    ) -> tampu.Store:
        """Open the store; create the file if it does not exist.

        ``first`` is the first action on it. For a new file it is tried in memory before, so that bad input does not
        leave an empty file behind.
        """
        if first is not None and self.is_new():
            with self._open("memory://", maintenance=False) as rehearsal:
                first(rehearsal)
        return self._open(self.store, maintenance=maintenance)

    def _check_token(self) -> None:
        if self.token is not None and not self.remote:
            raise tampu.InvalidConfig(
                "only a server takes a token", field="token", hint="give its url with --url http://…, or leave it out"
            )

    def _open(self, url: str, *, maintenance: bool) -> tampu.Store:
        self._check_token()
        return tampu.open(
            url, tenant=self.tenant or os.environ.get("TAMPU_TENANT") or "default", maintenance=maintenance
        )

    def command_line(self, *words: str) -> str:
        """A command line for the same store, to copy and paste."""
        start = [_command()]
        if self.url:
            start += ["--url", self.url]
        if self.tenant:
            start += ["--tenant", self.tenant]
        if self.token:
            start += ["--token", "KEY"]  # not the secret
        return shlex.join([*start, *words])
