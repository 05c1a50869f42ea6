"""What a disk may hold after power is lost: all that was synced, and any part of what was written since.

Everything up to the last sync of a file is there. Of the later writes each 512-byte sector may have any of the
contents it was given, or the one before, whatever the order of the writes; so prefixes, lost, reordered and torn
writes are all among the images. -shm is memory and gone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.disk import Event

SECTOR = 512
FATES = ("lost", "kept", "prefix", "torn", "torn")
"""Of what was not synced: nothing is there, all is, the first writes are, or each sector has a fate of its own."""


@dataclass
class _File:
    """One file as written so far, and what of it is certain."""

    synced: bytes | None = None
    """None: the file may not exist."""
    pending: list[Event] = field(default_factory=list)


class Platter:
    """Follows a log of events, one step at a time, and makes images of where it stands."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._deleted: dict[str, _File] = {}

    def step(self, event: Event) -> None:
        if event.kind == "mark":
            return
        file = self._files.setdefault(event.name, _File())
        if event.kind == "sync":
            file.synced = _applied(file.synced or b"", file.pending)
            file.pending = []
            # Syncing a file that is new also makes its entry in the folder certain, and the removals before it.
            self._deleted.clear()
        elif event.kind == "delete":
            del self._files[event.name]
            if not event.offset:
                self._deleted[event.name] = file
        else:
            file.pending.append(event)
            self._deleted.pop(event.name, None)

    def image(self, folder: Path, fate: str, rng: random.Random) -> None:
        """Write the files as they may be found."""
        for name, file in self._files.items():
            content = _image(file, fate, rng)
            if content is not None:
                (folder / name).write_bytes(content)
        for name, file in self._deleted.items():
            if fate != "kept" and rng.random() < 0.5:
                (folder / name).write_bytes(_applied(file.synced or b"", file.pending))


def _image(file: _File, fate: str, rng: random.Random) -> bytes | None:
    if fate == "kept":
        return _applied(file.synced or b"", file.pending)
    if fate == "prefix":
        return _applied(file.synced or b"", file.pending[: rng.randint(0, len(file.pending))])
    if fate == "torn" and file.pending:
        return _torn(file.synced or b"", file.pending, rng)
    return file.synced


def _applied(content: bytes, events: Sequence[Event]) -> bytes:
    if not events:
        return content
    made = bytearray(content)
    for event in events:
        _apply(made, event)
    return bytes(made)


def _apply(content: bytearray, event: Event) -> None:
    if event.kind == "truncate":
        del content[event.offset :]
        content.extend(bytes(event.offset - len(content)))
        return
    end = event.offset + len(event.data)
    content.extend(bytes(max(0, end - len(content))))
    content[event.offset : end] = event.data


def _torn(content: bytes, events: Sequence[Event], rng: random.Random) -> bytes:
    """Each sector as it was after a write of its own choice; a truncation happened, or did not."""
    current = bytearray(content)
    versions: dict[int, list[bytes]] = {}
    for event in events:
        if event.kind == "truncate":
            if rng.random() < 0.5:
                _apply(current, event)
                versions = {n: past for n, past in versions.items() if n * SECTOR < event.offset}
            continue
        first, last = event.offset // SECTOR, (event.offset + len(event.data) - 1) // SECTOR
        for n in range(first, last + 1):
            versions.setdefault(n, [_sector(current, n)])
        _apply(current, event)
        for n in range(first, last + 1):
            versions[n].append(_sector(current, n))
    keep = rng.choice((0.1, 0.5, 0.9))
    for n, past in versions.items():
        chosen = past[-1] if rng.random() < keep else rng.choice(past)
        current[n * SECTOR : n * SECTOR + len(chosen)] = chosen
    # A file that grew may have got its new size without its contents, or not at all.
    grown = max(len(content), rng.randint(0, len(current) // SECTOR) * SECTOR)
    return bytes(current[:grown]) if rng.random() < 0.3 else bytes(current)


def _sector(content: bytearray, n: int) -> bytes:
    return bytes(content[n * SECTOR : (n + 1) * SECTOR]).ljust(SECTOR, b"\0")
