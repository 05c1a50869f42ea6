"""The lives of many messages at once: events in order, and over each move what came before it, as whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tampu.lake.verbs import ENDS, LIVE, MOVES, SETTLES, STANDS
from tampu.model.journal import LEASE_END

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

VERBS = sorted(MOVES | STANDS)
STATES = sorted(LIVE | ENDS)


def in_order(rows: pa.Table) -> tuple[pa.Table, Numbers, Numbers]:
    """By message, then as the journal has it; each event once, its body behind it. (rows, message, place) of each."""
    verb = rows["verb"]
    rows = rows.filter(pc.or_(pc.is_null(verb), pc.is_in(verb, pa.array(VERBS)))).combine_chunks()
    who, partition, offset = _who(rows), _ranked(rows["partition"]), _numbers(rows["offset"])
    body = _flags(pc.is_null(rows["verb"]))
    last = np.where(body, 2, np.where(_flags(rows["new"]), 0, 1))
    order = np.lexsort((last, offset, partition, who))
    who, partition, offset, body = who[order], partition[order], offset[order], body[order]
    place = np.cumsum(_changes(who) | _changes(partition) | _changes(offset), dtype=np.int64)
    once = _changes(place) | _changes(body)
    return rows.take(pa.array(order[once])), who[once], place[once]


def _who(rows: pa.Table) -> Numbers:
    """A number for each tenant and id."""
    tenants, ids = _codes(rows["tenant"]), _codes(rows["id"])
    return tenants * (int(ids.max(initial=0)) + 1) + ids


def _codes(column: pa.ChunkedArray) -> Numbers:
    return _numbers(_one(column).dictionary_encode().indices)


def _ranked(column: pa.ChunkedArray) -> Numbers:
    """Numbers in the order of the texts."""
    told = _one(column).dictionary_encode()
    ranks = np.argsort(np.argsort(np.array(told.dictionary.to_pylist(), dtype=object)))
    return ranks[_numbers(told.indices)].astype(np.int64) if len(ranks) else np.zeros(len(told), np.int64)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _numbers(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """Whole numbers; null (when was a message created that is gone?) is 0, and is never asked for."""
    return np.asarray(pc.fill_null(_one(column).cast(pa.int64()), 0).to_numpy(zero_copy_only=False), np.int64)


def _flags(column: pa.ChunkedArray | pa.Array) -> Flags:
    return np.asarray(_one(column).to_numpy(zero_copy_only=False), np.bool_)


class Story:
    """The rows in order, and over their moves (`Move` k is row ``at_row[k]``) what came before each of them.

    Verbs that leave the message where it is are no moves, so "the one before" is always a move. A publish begins a
    life: an id of the user's own may be published again when its first message was removed, as another message.
    """

    def __init__(self, rows: pa.Table, who: Numbers, place: Numbers) -> None:
        self.rows = rows
        self._place = place
        verbs = _numbers(pc.fill_null(pc.index_in(rows["verb"], value_set=pa.array(VERBS)), -1))
        self.body: Flags = verbs < 0
        first = _changes(who)
        lives = np.cumsum(first | (verbs == VERBS.index("publish")))
        begin = np.maximum.accumulate(np.where(first, np.arange(len(who)), 0))
        typed = _flags(pc.is_valid(rows["type"])) & ~self.body
        self.kind: Numbers = _last(typed, begin)
        """By row: where its message was last told a type."""

        states = _numbers(pc.fill_null(pc.index_in(rows["state"], value_set=pa.array(STATES)), -1))
        self.at_row: Numbers = _moving(np.flatnonzero(among(verbs, MOVES, VERBS)), who, verbs, states)
        self.verb = verbs[self.at_row]
        self.state = states[self.at_row]
        self.at = _numbers(rows["at"])[self.at_row]
        self.new = _flags(rows["new"])[self.at_row]
        moves = np.arange(len(self.at_row))
        life = lives[self.at_row]
        begins = _changes(life)
        self.begin: Numbers = np.maximum.accumulate(np.where(begins, moves, 0))
        """By move: the first of its life."""
        self.one: Numbers = np.where(moves - 1 >= self.begin, moves - 1, -1)
        """The move before, or -1."""
        self.two: Numbers = np.where(moves - 2 >= self.begin, moves - 2, -1)
        self.final: Flags = _lasts(life)
        """By move: the last of its life."""
        self.waited = self.was("claim") & self.of(self.one, self.state, STATES, "ready")
        self.ended = among(self.verb, SETTLES, VERBS) & self.of(self.one, self.verb, VERBS, "claim")
        """By move: it ended a delivery."""
        message = np.cumsum(first) - 1
        self.latest_of_all: Flags = _lasts(message[self.at_row])
        """By move: the last of its message."""
        self.live: Flags = self._live(message)

    def was(self, *verbs: str) -> Flags:
        return among(self.verb, frozenset(verbs), VERBS)

    def of(self, which: Numbers, codes: Numbers, words: list[str], *wanted: str) -> Flags:
        """By move: does another one (-1: there is none) have one of these words?"""
        return (which >= 0) & among(codes, frozenset(wanted), words)[which] if len(codes) else np.zeros(0, np.bool_)

    def since_one(self) -> Numbers:
        """Microseconds since the move before."""
        return self.at - self.at[self.one] if len(self.at) else self.at

    def ran(self) -> Numbers:
        """Microseconds that a delivery took which a move ended. A lease that ran out took no longer than it lasted,
        whenever that was noticed."""
        if not len(self.at):
            return self.at
        end, late = self.at.copy(), np.flatnonzero(self.was("reap", "cancel"))
        if len(late):
            told = pc.extract_regex(_one(self.take("detail", self.at_row[late])), LEASE_END)
            until = pc.struct_field(told, "until").cast(pa.int64())
            end[late] = np.minimum(end[late], _numbers(pc.fill_null(until, np.iinfo(np.int64).max)))
        took: Numbers = np.maximum(end - self.at[self.one], 0)
        return took

    def so_far(self, amounts: npt.NDArray[np.int64] | Flags) -> Numbers:
        """The sum over the life up to each move."""
        if not len(amounts):
            return np.zeros(0, np.int64)
        total = np.cumsum(amounts, dtype=np.int64)
        return total - total[self.begin] + amounts[self.begin]

    def latest(self, which: Flags) -> Numbers:
        """By move: the last one in its life so far that is such a one, or -1."""
        return _last(which, self.begin)

    def first_claim(self) -> Numbers:
        claims = np.where(self.was("claim"), np.arange(len(self.verb)), len(self.verb))
        following = np.minimum.accumulate(claims[::-1])[::-1]
        found = following[self.begin] if len(following) else following
        return np.where(found <= np.arange(len(self.verb)), found, -1)

    def _live(self, message: Numbers) -> Flags:
        """By row: has its message not ended? What happened last decides."""
        if not len(message):
            return np.zeros(0, np.bool_)
        last = self.latest_of_all
        alive = np.zeros(int(message[-1]) + 1, np.bool_)
        alive[message[self.at_row[last]]] = among(self.state[last], LIVE, STATES)
        return alive[message] & ~self.body

    def body_of(self, moves: Numbers) -> Numbers:
        """The rows of their bodies, or -1: a body is behind its event."""
        here = self.at_row[moves]
        behind = np.minimum(here + 1, self.rows.num_rows - 1)
        return np.where(self.body[behind] & (self._place[behind] == self._place[here]), behind, -1)

    def take(self, name: str, rows: Numbers) -> pa.ChunkedArray:
        """A column at some rows; null where there is none (-1)."""
        return self.rows[name].take(pa.array(rows, mask=rows < 0))

    def row(self, moves: Numbers) -> Numbers:
        """The rows of moves, -1 for -1."""
        return np.where(moves >= 0, self.at_row[moves], -1) if len(self.at_row) else moves


def _moving(moves: Numbers, who: Numbers, verbs: Numbers, states: Numbers) -> Numbers:
    """Without adoptions of messages that the story has in that state already: they only went to another store."""
    before = np.concatenate((moves[:1], moves[:-1]))
    known = ~_changes(who[moves]) & (states[before] == states[moves])
    kept: Numbers = moves[~(known & (verbs[moves] == VERBS.index("adopt")))]
    return kept


def _changes(codes: Numbers | Flags) -> Flags:
    """True where a row's number is not that of the row before."""
    found = np.ones(len(codes), np.bool_)
    found[1:] = codes[1:] != codes[:-1]
    return found


def _lasts(codes: Numbers) -> Flags:
    """True where the number of the row behind is another."""
    return np.append(codes[1:] != codes[:-1], True)[: len(codes)]


def _last(which: Flags, begin: Numbers) -> Numbers:
    """The last place so far at which it holds, not before ``begin``; -1 if there is none."""
    found = np.maximum.accumulate(np.where(which, np.arange(len(which)), -1))
    return np.where(found >= begin, found, -1)


def among(codes: Numbers, words: frozenset[str], known: list[str]) -> Flags:
    return np.isin(codes, [known.index(word) for word in words])
