"""A result backend: each result is a held message with a time to live, so results expire, copy and show like messages.

A message never changes. The result of a task that gets another (started, then done) is a further message, numbered from
0; the last one counts. Their ids are derived from key and number, so two writers never have the same number.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from kombu.utils.url import maybe_sanitize_url

import tampu
from tampu.integrations.celery import stores

QUEUE = "celery-results"
_KEYS = uuid.UUID("0d0f6d6b-6f6b-5d10-9b0e-3ad9b7a0c8f4")
_BYTES = "application/octet-stream"
_UNFINISHED_SECONDS = 30 * 86_400
"""How long states are kept that are no results; a result that follows them must not outlive them."""
_MAX_PAYLOAD = 64 << 20


class TampuBackend(KeyValueStoreBackend):  # type: ignore[misc]  # celery has no types
    supports_autoexpire = True
    implements_incr = True

    def __init__(self, url: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = url or "tampu.db"
        self._store: tampu.Store | None = None
        self._process = 0
        self._counts: dict[str, int] = {}
        """By key, from which number on to look: an earlier one is known to be taken."""

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})

    def as_uri(self, include_password: bool = False) -> str:
        return f"tampu+{self.url if include_password else maybe_sanitize_url(self.url)}"

    @property
    def store(self) -> tampu.Store:
        """Each process has its own, and keeps it until it ends."""
        if self._store is None or self._process != os.getpid():
            self._store, self._process = stores.acquire(self.url), os.getpid()
            if self._store.queues.get(QUEUE, inherited=False).max_payload is None:
                self._store.queues.put(QUEUE, max_payload=_MAX_PAYLOAD)
        return self._store

    # -- what the base class asks for

    def get(self, key: bytes) -> bytes | None:
        found = self._last(_text(key))
        return None if found is None or found.state is not tampu.State.HELD else found.raw

    def mget(self, keys: Iterable[bytes]) -> Iterator[bytes | None]:
        return (self.get(key) for key in keys)

    def set(self, key: bytes, value: bytes | str) -> None:
        self._add(_text(key), value, self.expires)

    def _set_with_state(self, key: bytes, value: bytes | str, state: str) -> None:
        keep = self.expires
        if keep and state not in states.READY_STATES:
            keep = max(keep, _UNFINISHED_SECONDS)
        self._add(_text(key), value, keep)

    def delete(self, key: bytes) -> None:
        found = self._last(_text(key))
        if found is not None:
            self.store.cancel(found.id)

    def incr(self, key: bytes) -> int:
        """The number of calls so far: each call takes the next number, and no two the same."""
        return self._add(f"count {_text(key)}", b"", self.chord_expires or self.expires) + 1

    def expire(self, key: bytes, value: int) -> None:
        """Each entry has its time to live since it was made."""

    # -- entries

    def _add(self, key: str, value: bytes | str, seconds: float | None) -> int:
        """Store the next entry of the key; returns its number."""
        number = self._free(key)
        raw = value.encode() if isinstance(value, str) else value
        while True:
            stored = self.store.publish(
                QUEUE, raw or b"-", content_type=_BYTES, id=_id(key, number), hold="result", ttl=seconds or None,
                source=key[:128],
            )  # fmt: skip
            if not stored.duplicate:
                self._remember(key, number + 1)
                return number
            number += 1

    def _free(self, key: str) -> int:
        """A number that seems to be free; all before it are taken."""
        low = self._counts.get(key, 0)
        if self._entry(key, low) is None:
            return low
        step = 1
        while self._entry(key, low + step) is not None:
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._entry(key, middle) is not None else (low, middle)
        return high

    def _last(self, key: str) -> tampu.Message | None:
        free = self._free(key)
        self._remember(key, max(0, free - 1))
        return self._entry(key, free - 1) if free else None

    def _remember(self, key: str, number: int) -> None:
        if len(self._counts) > 10_000:
            self._counts.clear()
        self._counts[key] = number

    def _entry(self, key: str, number: int) -> tampu.Message | None:
        try:
            return self.store.get(_id(key, number))
        except tampu.NotFound:
            return None


def _id(key: str, number: int) -> str:
    return str(uuid.uuid5(_KEYS, f"{key} {number}"))


def _text(key: bytes | str) -> str:
    return key.decode() if isinstance(key, bytes) else key
