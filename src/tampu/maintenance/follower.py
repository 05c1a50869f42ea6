"""The follower: hands new transitions of the journal to the registered handlers, and stores what they want done.

See `tampu.broker.followers`. It runs in a thread of its own, so that a slow handler holds up no delay and no lease; the
thread is started when there is a handler. The position of a handler is written with the version it was read with. So of
two processes that both believe to lead only one has any effect.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tampu.broker import journal_readers, validate
from tampu.broker.core import Core
from tampu.broker.followers import FOLLOWERS, Acts, Effects, Handler, do_named, reader_name
from tampu.broker.journal_cursor import JournalCursor, end_of_journal
from tampu.broker.journal_readers import Failure, Reader
from tampu.broker.policies.followers import OWN
from tampu.engines.port import Cancel, Free, PollStatus, Publish, Together
from tampu.model.errors import QueueClosed, QueueFull, StorageError, TampuError, VersionConflict
from tampu.model.journal import Position, Transition
from tampu.model.times import SECOND

log = logging.getLogger("tampu.maintenance")
_PAGE = 500
_MOST_BYTES = 4 * 1024 * 1024
"""Payloads in one unit, unless one transition alone brings more."""
_BUSY_SECONDS = 0.02
"""Between two looks at least, so that a busy store is read in pages."""
_QUICK_SECONDS, _SOON_SECONDS = 0.002, 1.0
"""In place of ``_BUSY_SECONDS``, for so long after a handler said that somebody waits for what it does next."""
_FIRST_SECONDS, _LAST_SECONDS, _GROWTH = 0.25, 10.0, 1.25
"""Between two looks when nothing is found: other processes tell of what became ready, but not of all else."""
_POLLED_SECONDS = 60.0
"""In place of ``_LAST_SECONDS`` on engines where maintenance hears of every change of the journal (`hear`)."""
_RETRY_SECONDS = 1.0
ATTEMPTS = 10
"""A handler that raises is parked after this many attempts."""
_FIRST_WAIT_US, _LONGEST_WAIT_US = SECOND, 60 * SECOND
_FULL_WAIT_US = 5 * SECOND
_ERROR_CHARACTERS = 500


class Follower:
    def __init__(
        self,
        core: Core,
        leads: Callable[[], bool] = lambda: True,
        paused: Callable[[str], bool] = lambda _reader: False,
    ) -> None:
        self._core = core
        self._leads = leads
        self._paused = paused
        """True if users have paused the reader with this name."""
        self._known: dict[str, tuple[Reader, int]] = {}
        """The stored position of each handler, and the version of its document."""
        self._read_at = 0.0
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._soon_until = 0.0
        """Until then somebody waits for what a handler does next."""
        self._pause = _FIRST_SECONDS
        self._longest = _LAST_SECONDS
        self._last_poll: tuple[int, Position | None] | None = None
        self._thread: threading.Thread | None = None
        self._own: list[Handler] | None = None
        """Tampu's own handlers that are used; None: not known."""

    # -- one look at the journal

    def turn(self) -> int | None:
        """Hand each handler its next page; how many transitions there were. None: there are more, look again now."""
        handlers = self._handlers()
        self.enroll(handlers)
        starts: list[Position] = []
        pages: list[tuple[JournalCursor, list[Transition]]] = []
        for handler in handlers:
            if self._paused(reader_name(handler.name)):
                continue
            found = self._carried_out(handler)
            if found is None:
                continue
            reader, version = found
            if reader.failure is not None and self._must_wait(reader.failure):
                continue
            if reader.position not in starts:  # most handlers are at the same place
                starts.append(reader.position)
                cursor = JournalCursor(self._core.engine, reader.position, _PAGE)
                pages.append((cursor, cursor.read()))
            cursor, transitions = pages[starts.index(reader.position)]
            if cursor.position != reader.position:
                self._hand_over(handler, reader, version, transitions, cursor.position)
                if handler.name in self._known:
                    self._carried_out(handler)
        if any(cursor.more for cursor, _ in pages):
            return None
        return sum(len(transitions) for _, transitions in pages)

    def _handlers(self) -> list[Handler]:
        """Those that programs have registered, and those of tampu that somebody uses: they have a position."""
        if self._own is None:
            stored = self._core.engine.documents(journal_readers.KIND, journal_readers.TENANT)
            names = {document.name for document in stored}
            self._own = [own for own in OWN if reader_name(own.name) in names]
        return [*FOLLOWERS, *self._own]

    def enroll(self, handlers: Sequence[Handler]) -> None:
        """Know the positions of the handlers; those that are new begin at the end of the journal."""
        known = self._known
        if all(handler.name in known for handler in handlers):
            waits = any(known[handler.name][0].failure is not None for handler in handlers)
            if not waits or time.monotonic() - self._read_at < _RETRY_SECONDS:
                return  # only one that waits may be changed by others
        engine, self._read_at = self._core.engine, time.monotonic()
        stored = {
            document.name: (journal_readers.decode(document), document.version)
            for document in engine.documents(journal_readers.KIND, journal_readers.TENANT)
        }
        for handler in handlers:
            name = reader_name(handler.name)
            if name not in stored:
                reader = Reader(name, end_of_journal(engine), engine.now())
                try:
                    stored[name] = reader, self._core.do(journal_readers.saving(reader, version=0))
                except VersionConflict:  # another process was faster
                    document = engine.document(journal_readers.KIND, journal_readers.TENANT, name)
                    if document is None:
                        raise
                    stored[name] = journal_readers.decode(document), document.version
            known[handler.name] = stored[name]

    def _must_wait(self, failure: Failure) -> bool:
        return failure.parked or failure.retry_us > self._core.engine.now()

    def _hand_over(
        self, handler: Handler, reader: Reader, version: int, transitions: list[Transition], position: Position
    ) -> None:
        effects = Effects(handler.name, self._core)
        try:
            if transitions:
                handler.handle(transitions, effects)
            calls = effects.calls()
            if _size(calls) > _MOST_BYTES and len(transitions) > 1:
                half = transitions[: len(transitions) // 2]
                reached = reader.position | {moved.partition: moved.offset for moved in half}
                self._hand_over(handler, reader, version, half, reached)
                return
            moved_on = Reader(
                reader.name, position, self._core.engine.now(), intents=effects.intents(),
                handled=reader.handled + len(transitions),
            )  # fmt: skip
            unit = Together(journal_readers.TENANT, [journal_readers.saving(moved_on, version), *calls])
            self._known[handler.name] = moved_on, self._core.do(unit)[0]
            if effects.soon:
                self._soon_until = time.monotonic() + _SOON_SECONDS
        except StorageError:  # it says nothing of the handler, and the unit may be stored
            self.forget()
            raise
        except VersionConflict as error:
            self._known.pop(handler.name, None)
            if self._stored_version(reader.name) == version:  # it is of a document that the handler wrote
                self._failed(handler, reader, version, error)
        except Exception as error:
            self._failed(handler, reader, version, error)

    def _carried_out(self, handler: Handler) -> tuple[Reader, int] | None:
        """`_carry_out`; None if it must be tried again in another look."""
        try:
            return self._carry_out(handler)
        except VersionConflict:  # another process leads, and does the same
            self._known.pop(handler.name, None)
        except StorageError:
            raise
        except Exception:
            log.exception("what follower %s has decided cannot be done, retrying", handler.name)
        return None

    def _carry_out(self, handler: Handler) -> tuple[Reader, int]:
        """Do what was decided when a handler got to its position, perhaps by another leader. Returns the position."""
        reader, version = self._known[handler.name]
        for intent in reader.intents:
            if intent.verb == "act":
                assert isinstance(handler, Acts)
                handler.act(self._core, intent.tenant, intent.ids)
            else:
                do_named(self._core, (Cancel if intent.verb == "cancel" else Free)(intent.tenant, intent.ids))
        if reader.intents:
            reader = msgspec.structs.replace(reader, intents=[])
            self._known[handler.name] = reader, (version := self._core.do(journal_readers.saving(reader, version)))
        return reader, version

    def _stored_version(self, name: str) -> int | None:
        document = self._core.engine.document(journal_readers.KIND, journal_readers.TENANT, name)
        return None if document is None else document.version

    def _failed(self, handler: Handler, reader: Reader, version: int, error: Exception) -> None:
        """Keep the error with the position, and when to try again."""
        attempts = reader.failure.attempts if reader.failure is not None else 0
        wait = _FULL_WAIT_US
        if not isinstance(error, QueueFull | QueueClosed):  # no error of the handler: the queue has no room
            attempts += 1
            wait = min(_FIRST_WAIT_US << (attempts - 1), _LONGEST_WAIT_US)
        text = validate.clip(f"{type(error).__name__}: {error}", _ERROR_CHARACTERS)
        failure = Failure(text, attempts, self._core.engine.now() + wait, attempts >= ATTEMPTS)
        if failure.parked:
            log.error("follower %s is parked: %s", handler.name, text, exc_info=error)
        else:
            log.warning("follower %s waits: %s", handler.name, text)
        self._known.pop(handler.name, None)
        waiting = msgspec.structs.replace(reader, failure=failure)
        with contextlib.suppress(VersionConflict):  # another process leads: what it found counts
            self._known[handler.name] = waiting, self._core.do(journal_readers.saving(waiting, version))

    def forget(self) -> None:
        """Drop the cached positions, because another process may have moved them."""
        self._known.clear()

    # -- the thread

    def start(self) -> None:
        """Start the thread, unless it runs already or there are no followers."""
        if self._thread is None and self._handlers():
            self._core.coalescer.on_commit.append(self._committed)
            self._thread = threading.Thread(target=self._run, name="tampu-follower", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Something may have happened: look soon."""
        self._pause = _FIRST_SECONDS
        self._wake.set()

    def on_poll(self, status: PollStatus) -> None:
        """Look soon if a document has changed since the last poll, or the journal if the engine reports its end."""
        found = (status.revision, status.journal_end)
        self._longest = _LAST_SECONDS if status.journal_end is None else _POLLED_SECONDS
        if found != self._last_poll:
            self._last_poll = found
            self._own = None
            self.wake()

    def _committed(self, _calls: int, _seconds: float) -> None:
        self.wake()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                seconds = self.step()
            except Exception as error:
                if not self._core.closed:
                    known = isinstance(error, TampuError)
                    log.warning("followers failed, retrying in %g s: %s", _RETRY_SECONDS, error, exc_info=not known)
                self.forget()
                self._stopped.wait(_RETRY_SECONDS)
                continue
            if seconds:
                soon = time.monotonic() < self._soon_until
                self._stopped.wait(_QUICK_SECONDS if soon else _BUSY_SECONDS)
                self._wake.wait(seconds)

    def step(self) -> float:
        """Give new transitions to the handlers. Return the seconds to wait, unless something wakes the thread."""
        if not self._handlers() or not self._leads():
            self.forget()
            return _RETRY_SECONDS
        count = self.turn()
        if count is None:
            return 0.0
        self._pause = _FIRST_SECONDS if count else min(self._longest, self._pause * _GROWTH)
        return self._pause

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()


def _size(calls: Sequence[Any]) -> int:
    return sum(len(item.packed) for call in calls if isinstance(call, Publish) for item in call.items)
