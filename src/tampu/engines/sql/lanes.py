"""The places of groups: who gets one and goes on, who is held, who goes next when one is left.

What a place is, and a pace: `tampu.engines.places`. What a claim costs where there is a pace: `pacing`. Everything here
has the locks of its groups first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tampu.engines.codes import HELD
from tampu.engines.places import MOST_FREED, ORDERED, Limits
from tampu.engines.sql.card import Card, Waiting
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints
from tampu.engines.sql.locks import lane_lock
from tampu.engines.sql.waiting import hold, start

Named = tuple[int, bytes]
"""A group: its queue and its name."""
Seat = tuple[int, bytes, int]
"""A place: the group's queue and name, and the message that has it."""


@dataclass
class Lane:
    """A group: its limits, and who has its places."""

    limits: Limits
    seqs: set[int]
    claimed: set[int] = field(default_factory=set)
    """Of these, and where there is a pace: who is leased."""
    spent: int = 0
    """When all the tokens that were spent are saved up again; by a clock that was ahead, as if all were spent now."""

    @property
    def waiting(self) -> int:
        """How many have a place and were not claimed yet."""
        return len(self.seqs - self.claimed)

    @property
    def room(self) -> int:
        return max(0, self.limits.vacant(len(self.seqs), self.waiting))

    def due(self, now: int, place: int, run_at: int | None) -> int | None:
        """When the message may go that is so many-th to wait for a token; not before ``run_at``."""
        if self.limits.pace is None:
            return run_at
        return max(run_at or 0, self.limits.pace.due(self.spent, now, place))


def known_lanes(
    commit: Commit, wanted: Collection[Named], limits: Limits | None = None, *, paces: bool = True
) -> dict[Named, Lane]:
    """These groups, locked: nobody else takes or leaves a place or a token of theirs.

    ``limits`` are those of each group from now on; None: as the queue says.
    """
    found: dict[Named, Lane] = {}
    if not wanted:
        return found
    _lock(commit, wanted)
    for q, lane, places, us, burst, seq in commit.db.rows("select_slots", *_columns(wanted)):
        if (q, lane) not in found:
            found[q, lane] = Lane(Limits.kept(places, us, burst), set())
        if seq is not None:
            found[q, lane].seqs.add(seq)
    if limits is not None:
        for q in {q for (q, _), lane in found.items() if lane.limits != limits}:
            set_limits(commit, q, limits)
        for known in found.values():
            known.limits = limits
    paced = [name for name, lane in found.items() if lane.limits.pace is not None] if paces else []
    if paced:
        for q, lane, spent, seq in commit.db.rows("select_group_rates", *_columns(paced)):
            pace = found[q, lane].limits.pace
            assert pace is not None
            found[q, lane].spent = min(spent or 0, pace.most(commit.now))
            if seq is not None:
                found[q, lane].claimed.add(seq)
    return found


def _lock(commit: Commit, lanes: Iterable[Named]) -> None:
    commit.locks.take(lane_lock(commit.house.name(commit.db, q), lane) for q, lane in lanes)


def _columns(lanes: Iterable[Named]) -> tuple[Ints, Blobs]:
    pairs = sorted(lanes)
    return Ints(q for q, _ in pairs), Blobs(lane for _, lane in pairs)


def set_limits(commit: Commit, q: int, limits: Limits) -> None:
    pace = limits.pace
    commit.db.send("set_group_limits", q, limits.places, pace and pace.us, pace and pace.burst)


# -- places


def seat(commit: Commit, seats: Sequence[Seat]) -> None:
    """These have places now."""
    if seats:
        commit.db.send("insert_slots", *_seats(seats))


def unseat(commit: Commit, seats: Sequence[Seat]) -> None:
    """These have no places any more; nobody is let go for that."""
    if seats:
        commit.db.send("delete_slots", *_seats(seats))


def _seats(seats: Sequence[Seat]) -> tuple[Ints, Blobs, Ints]:
    return Ints(q for q, _, _ in seats), Blobs(lane for _, lane, _ in seats), Ints(seq for _, _, seq in seats)


# -- going on


def admit(commit: Commit, waiting: Sequence[Waiting], limits: Limits | None = None) -> list[int]:
    """`start`, except for those of whose group all places are taken: held until one is free.

    Who has kept its place through a retry goes on in it; where groups keep order it may need a token for that.
    ``limits`` as in `known_lanes`.
    """
    if not any(card.lane is not None for card, _, _ in waiting):
        return start(commit, waiting)
    now = commit.now
    lanes = known_lanes(commit, {(card.q, card.lane) for card, _, _ in waiting if card.lane is not None}, limits)
    held: list[tuple[Card, int | None, bytes | None, bytes]] = []
    going: list[Waiting] = []
    seats: list[Seat] = []
    for card, run_at, lease in waiting:
        lane = None if card.lane is None else lanes[card.q, card.lane]
        later = run_at is not None and run_at > now
        if lane is None or (later and lane.limits.places != ORDERED):
            going.append((card, run_at, lease))
        elif card.seq in lane.seqs:
            going.append((card, lane.due(now, 1, run_at) if lane.limits.places == ORDERED else run_at, lease))
        elif not lane.room:
            held.append((card, run_at, card.lane, b"group"))
        else:
            lane.seqs.add(card.seq)
            seats.append((card.q, card.lane or b"", card.seq))
            at = lane.due(now, lane.waiting, run_at)
            if at is not None and at > now:
                commit.waits[card.seq] = at
            going.append((card, at, lease))
    seat(commit, seats)
    hold(commit, held)
    states = dict(zip([card.seq for card, _, _ in going], start(commit, going), strict=True))
    return [states.get(card.seq, HELD) for card, _, _ in waiting]


# -- leaving


def step_back(commit: Commit, cards: Iterable[Card]) -> None:
    """Messages will be tried again later: their places are others' meanwhile, where groups need not keep order."""
    grouped = [card for card in cards if card.lane is not None]
    if grouped:
        names = {(card.q, card.lane) for card in grouped if card.lane is not None}
        lanes = known_lanes(commit, names, paces=False)
        left = [card for card in grouped if lanes[card.q, card.lane or b""].limits.places != ORDERED]
        leave_lanes(commit, ((card.q, card.lane, card.seq) for card in left))


def leave_lanes(commit: Commit, over: Iterable[tuple[int, bytes | None, int]]) -> None:
    """(q, lane, seq) that have ended: the next of each group go from held to ready, in this same commit."""
    ends = [(q, lane, seq) for q, lane, seq in over if lane is not None]
    if not ends:
        return
    _lock(commit, ((q, lane) for q, lane, _ in ends))
    next_: list[Waiting] = []
    paced: list[Named] = []
    for seq, q, attempts, stamp, own, lane, *columns, run_at in commit.db.rows(
        "release_slots", *_seats(ends), MOST_FREED
    ):
        if seq is None:
            paced.append((q, lane))
        else:
            next_.append((Card(seq, q, attempts, stamp, own, lane, *columns), run_at, None))
    _let_go(commit, next_)
    if paced:
        fill(commit, known_lanes(commit, paced))


def fill(commit: Commit, lanes: dict[Named, Lane]) -> None:
    """Let go who waits for a place of these groups, which have a pace: each when there is a token for it."""
    open_ = [(q, name, lane.room) for (q, name), lane in sorted(lanes.items()) if lane.room]
    if not open_:
        return
    next_: list[Waiting] = []
    for *columns, run_at in commit.db.rows("next_in_group", *_seats(open_)):
        card = Card(*columns)
        lane = lanes[card.q, card.lane or b""]
        lane.seqs.add(card.seq)
        next_.append((card, lane.due(commit.now, lane.waiting, run_at), None))
    _let_go(commit, next_)


def _let_go(commit: Commit, next_: Sequence[Waiting]) -> None:
    commit.count_all((card for card, _, _ in next_), HELD, -1)
    seat(commit, [(card.q, card.lane, card.seq) for card, _, _ in next_ if card.lane is not None])
    for (card, _, _), state in zip(next_, start(commit, next_), strict=True):
        commit.note("free", state, card)
