"""The first start on a store: makes an admin key for all tenants, in a file that only its owner can read.

The file is written before the key is stored, and each step can be repeated. If the process dies in between, the next
start continues with the token in the file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import urllib.parse
from pathlib import Path

import msgspec
import structlog

from tampu.broker.core import Core
from tampu.engines.port import PutDocument
from tampu.model.decoders import from_json
from tampu.model.errors import InvalidConfig, VersionConflict
from tampu.server.auth import keys
from tampu.server.auth.grants import ALL_TENANTS, FULL
from tampu.server.settings import ServerSettings

_KIND = "secret"
_MARK = "first_key"
log = structlog.get_logger("tampu.server")


class _Mark(msgspec.Struct):
    key_id: str


_read_mark = from_json(_Mark).decode


def path_of(settings: ServerSettings) -> Path:
    """The file of the admin key."""
    if settings.key_file is not None:
        return Path(settings.key_file)
    store = store_file(settings.url)
    return Path("tampu-admin.key") if store is None else Path(f"{store}.key")


def store_file(url: str) -> Path | None:
    """The file of an embedded store; None for other stores."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return Path(url)
    return Path(urllib.parse.unquote(rest.partition("?")[0].removeprefix("/"))) if scheme == "sqlite" else None


def ensure(core: Core, settings: ServerSettings) -> str | None:
    """Make the first key if the store has none. Returns the id of the key in the file, if the store has that key."""
    path = path_of(settings)
    mark = core.engine.document(_KIND, keys.TENANT, _MARK)
    if mark is None:
        token = _read(path) or _write(path, core.engine.now())
        key = keys.of_token(token, ALL_TENANTS, "admin", FULL, core.engine.now())
        if key is None:
            raise InvalidConfig(f"{path} has no key", field="key_file", hint="move it away, or name another file")
        with contextlib.suppress(VersionConflict):  # an earlier start stored the key and died
            core.coalescer.submit(keys.saving(key, 0))
        try:
            core.coalescer.submit(PutDocument(_KIND, keys.TENANT, _MARK, msgspec.json.encode(_Mark(key.id)), 0))
            log.info("first_key", file=str(path), key=key.prefix)
            return key.id
        except VersionConflict:
            if marked(core) == key.id:
                return key.id
            core.coalescer.submit(keys.revoking(key.id))  # another node was first; its key is the first key
            path.unlink(missing_ok=True)
            return None
    known = _read(path)
    parts = None if known is None else keys.split(known)
    return None if parts is None or core.engine.document(keys.KIND, keys.TENANT, parts[0]) is None else parts[0]


def marked(core: Core) -> str | None:
    """The id of the first key. A node that starts at the same time may share the file, and make the same key."""
    mark = core.engine.document(_KIND, keys.TENANT, _MARK)
    return None if mark is None else _read_mark(mark.value).key_id


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidConfig(
                f"other users can read {path}", field="key_file", hint=f"run chmod 600 {path}, and rotate the key"
            )
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def _write(path: Path, now_us: int) -> str:
    """Write a new token to a new file, atomically, and never readable by others."""
    _, token = keys.mint(ALL_TENANTS, "admin", FULL, now_us)
    # A random name, because processes in different containers can have the same pid.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, does not replace the file of a process that was faster
    except FileExistsError:
        token = _read(path) or token
    finally:
        temporary.unlink()
    return token
