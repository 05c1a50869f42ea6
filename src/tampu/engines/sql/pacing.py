"""The pace of groups: what a claim costs, when a message that comes back may go again, and a pace that changes.

What it means is in `tampu.engines.places`. Everything here has the locks of its groups first, so of two commits that
look at the tokens of a group one comes after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tampu.engines.places import ORDERED, Limits
from tampu.engines.sql.card import Card
from tampu.engines.sql.commit import Commit
from tampu.engines.sql.db import Blobs, Ints
from tampu.engines.sql.lanes import Named, Seat, fill, known_lanes, seat, unseat
from tampu.engines.sql.locks import lane_lock


def spend(commit: Commit, q: int, claimed: Sequence[tuple[bytes | None, int]]) -> None:
    """(lane, seq) were claimed: each costs a token of its group, and the next ones of the group get their times."""
    by_lane: dict[Named, list[int]] = {}
    for group, seq in claimed:
        if group is not None:
            by_lane.setdefault((q, group), []).append(seq)
    lanes = {name: lane for name, lane in known_lanes(commit, by_lane).items() if lane.limits.pace is not None}
    if not lanes:
        return
    commit.turn_page()  # the next claim of this commit may take what is set free here
    left: list[Seat] = []
    for name, lane in lanes.items():
        assert lane.limits.pace is not None
        lane.spent = lane.limits.pace.spend(lane.spent, commit.now, len(by_lane[name]))
        if lane.limits.keeps_place:
            lane.claimed.update(lane.seqs.intersection(by_lane[name]))
        else:
            left += [(*name, seq) for seq in by_lane[name] if seq in lane.seqs]
            lane.seqs.difference_update(by_lane[name])
            lane.claimed.difference_update(by_lane[name])
    _keep(commit, {name: lane.spent for name, lane in lanes.items()})
    unseat(commit, left)
    fill(commit, lanes)


def again(commit: Commit, cards: Sequence[Card]) -> list[int | None]:
    """When messages whose leases are over may be claimed again; None: at once. Each needs another token.

    While others wait for all there is, a message has no place, and asks for one when that time has come.
    """
    lanes = known_lanes(commit, {(card.q, card.lane) for card in cards if card.lane is not None})
    came = {(card.q, card.lane or b"", card.seq) for card in cards}
    before = {(*name, seq) for name, lane in lanes.items() for seq in lane.seqs}
    for (q, name), lane in lanes.items():
        if lane.limits.pace is not None:
            lane.seqs.difference_update({seq for owner, group, seq in came if (owner, group) == (q, name)})
    times: list[int | None] = []
    for card in cards:
        own = None if card.lane is None else lanes[card.q, card.lane]
        pace = None if own is None else own.limits.pace
        if own is None or pace is None:
            times.append(None)
            continue
        place = own.waiting + 1
        if place <= pace.burst:
            own.seqs.add(card.seq)
        due = pace.due(own.spent, commit.now, place)
        times.append(due if due > commit.now else None)
    after = {(*name, seq) for name, lane in lanes.items() for seq in lane.seqs}
    unseat(commit, sorted(before - after))
    seat(commit, sorted(after - before))
    return times


def coming_back(commit: Commit, cards: Sequence[tuple[Card, bool]]) -> list[int | None]:
    """`again` of those of a group with a pace; the others are ready at once."""
    paced = [card for card, paced in cards if paced]
    times = iter(again(commit, paced) if paced else ())
    return [next(times) if paced else None for _, paced in cards]


def retime_ahead(commit: Commit, limit: int) -> None:
    """Groups that a clock which was ahead has put off get the times of now; those that others have locked, later."""
    found = [(q, lane) for q, lane in commit.db.rows("select_rates_ahead", commit.now, limit)]
    if not found:
        return
    locks = {(q, lane): lane_lock(commit.house.name(commit.db, q), lane) for q, lane in found}
    had = commit.locks.try_take(locks.values())
    lanes = known_lanes(commit, [name for name in found if locks[name] in had])
    for q in {q for q, _ in lanes}:
        names = [name for owner, name in lanes if owner == q]
        retime(commit, q, names, lanes[q, names[0]].limits)
    if lanes:
        _keep(commit, {name: lane.spent for name, lane in lanes.items()})


def retime(commit: Commit, q: int, names: Sequence[bytes], limits: Limits) -> None:
    """The pace has changed, or the clock: who waits for a token gets a new time. Where groups keep order, some wait for
    another reason, and nobody can tell who: they stay as they are."""
    if limits.places == ORDERED or not names:
        return
    lanes = known_lanes(commit, {(q, name) for name in names})
    waits: dict[bytes, list[int]] = {}
    spent: dict[bytes, int] = {}
    for name, _, seq, until in sorted(commit.db.rows("select_token_waits", q, Blobs(sorted(names)))):
        waits.setdefault(name, []).append(seq)
        spent[name] = until if limits.pace is None else min(until, limits.pace.most(commit.now))
    times: list[tuple[int, int]] = []
    for name, seqs in waits.items():
        first = lanes[q, name].waiting - len(seqs) + 1
        for place, seq in enumerate(seqs, first):
            due = commit.now if limits.pace is None else limits.pace.due(spent[name], commit.now, place)
            times.append((max(due, commit.now), seq))
    if times:
        _keep(commit, {(q, name): until for name, until in spent.items()})
        commit.db.send("set_run_at", Ints(seq for _, seq in times), Ints(at for at, _ in times))
        commit.falls_due(min(times)[0])


def _keep(commit: Commit, spent: dict[Named, int]) -> None:
    names = sorted(spent)
    commit.db.send(
        "upsert_group_rates",
        Ints(q for q, _ in names),
        Blobs(lane for _, lane in names),
        Ints(spent[name] for name in names),
    )
