"""The balance that sticky assignors look for: as even as can be, and of that what changes little. Pure.

An assignment is as even as can be when no chain of moves, each of a partition from one member to the next that
subscribes to its topic, ends at a member that has two partitions less than the one at its beginning (Harvey et al.,
"Semi-matchings for bipartite graphs and load balancing", 2003). Whatever chains are taken, the loads come out the same.

Partitions that had no owner move first, for that changes nothing for anybody. So an assignment of which partitions
are withheld is arrived at again when they are free, and nothing else moves (what cooperative rebalancing needs).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tidelog.model import TopicPartition

#: Of a chain: who gives a partition of which topic to whom.
_Link = tuple[str, str, str]
#: Of each member, by topic; no list is empty.
_Held = dict[str, dict[str, list[TopicPartition]]]


class Balance:
    """`subscribers` has each topic's members, `owners` who had what; an owner that is no subscriber has lost it."""

    def __init__(
        self,
        members: Iterable[str],
        subscribers: Mapping[str, Sequence[str]],
        partitions: Iterable[TopicPartition],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self._subscribers = subscribers
        self._loads = dict.fromkeys(members, 0)
        # What may move at no cost, and what its owner would miss.
        self._fresh: _Held = {member: {} for member in self._loads}
        self._kept: _Held = {member: {} for member in self._loads}
        able = {topic: set(theirs) for topic, theirs in subscribers.items()}
        self._homes: dict[TopicPartition, str] = {}
        rest = []
        for tp in partitions:
            owner = owners.get(tp)
            if owner in able[tp.topic]:
                self._homes[tp] = owner
                self._give(self._kept, owner, tp)
            else:
                rest.append(tp)
        # Who has fewer to choose from comes first, so that it finds them empty.
        for tp in sorted(rest, key=lambda tp: len(able[tp.topic])):
            self._give(self._fresh, min(subscribers[tp.topic], key=self._loads.__getitem__), tp)
        self._even_out(fresh_only=True)
        self._even_out(fresh_only=False)
        self._bring_home()

    @property
    def given(self) -> dict[str, list[TopicPartition]]:
        """Of each member, in order."""
        return {
            member: sorted(tp for held in (self._kept, self._fresh) for tps in held[member].values() for tp in tps)
            for member in self._loads
        }

    def _even_out(self, *, fresh_only: bool) -> None:
        """From the one that has most downwards: where no chain begins now, none will."""
        left = dict.fromkeys(self._loads)
        while left:
            begin = max(left, key=self._loads.__getitem__)
            chain = self._chain(begin, self._loads[begin] - 2, fresh_only=fresh_only)
            for link in chain:
                self._move(*link)
            if not chain:
                del left[begin]

    def _bring_home(self) -> None:
        """What was taken from its owner may stay after all where something fresh can move in its stead."""
        for member, held in self._fresh.items():
            for tp in [tp for tps in held.values() for tp in tps if tp in self._homes]:
                if tp in held.get(tp.topic, ()):
                    self._maybe_return(tp, member, self._homes[tp])

    def _maybe_return(self, tp: TopicPartition, member: str, home: str) -> None:
        self._take(self._fresh, member, tp)
        self._give(self._kept, home, tp)
        if self._loads[home] <= self._loads[member] + 1:
            return
        chain = self._chain(home, self._loads[member], fresh_only=True)
        for link in chain:
            self._move(*link)
        if not chain:
            self._take(self._kept, home, tp)
            self._give(self._fresh, member, tp)

    def _chain(self, begin: str, enough: int, *, fresh_only: bool) -> list[_Link]:
        """To one that has no more than `enough`: the fewest moves that cost, to whom has least; the last move first."""
        if min(self._loads.values()) > enough:
            return []
        came: dict[str, _Link | None] = {begin: None}
        topics: set[str] = set()
        frontier = [begin]
        while frontier:
            # Whoever can be reached by what moves at no cost; the list grows as it is gone through.
            for member in frontier:
                frontier += self._reach(member, self._fresh, came, topics)
            end = min(frontier, key=self._loads.__getitem__)
            if self._loads[end] <= enough:
                return _links(end, came)
            if fresh_only:
                break
            frontier = [to for member in frontier for to in self._reach(member, self._kept, came, topics)]
        return []

    def _reach(self, member: str, held: _Held, came: dict[str, _Link | None], topics: set[str]) -> list[str]:
        new = [topic for topic in held[member] if topic not in topics]
        topics.update(new)
        reached = []
        for topic in new:
            for to in self._subscribers[topic]:
                if to not in came:
                    came[to] = (member, topic, to)
                    reached.append(to)
        return reached

    # --- holding -------------------------------------------------------------------------------------

    def _give(self, held: _Held, member: str, tp: TopicPartition) -> None:
        held[member].setdefault(tp.topic, []).append(tp)
        self._loads[member] += 1

    def _take(self, held: _Held, member: str, tp: TopicPartition) -> None:
        tps = held[member][tp.topic]
        tps.remove(tp)
        if not tps:
            del held[member][tp.topic]
        self._loads[member] -= 1

    def _move(self, member: str, topic: str, to: str) -> None:
        """What came last goes first: it is the least that somebody is used to."""
        held = self._fresh if topic in self._fresh[member] else self._kept
        tp = held[member][topic][-1]
        self._take(held, member, tp)
        self._give(self._fresh, to, tp)


def _links(end: str, came: Mapping[str, _Link | None]) -> list[_Link]:
    links = []
    link = came[end]
    while link is not None:
        links.append(link)
        link = came[link[0]]
    return links


def latest_owners(claims: Iterable[tuple[TopicPartition, int, str]]) -> dict[TopicPartition, str]:
    """Who had what last, of partition, generation and member. Of two of one generation neither (KAFKA-12984)."""
    latest: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for tp, generation, member in claims:
        known = latest[tp]
        if not known or generation == known[0][0]:
            known.append((generation, member))
        elif generation > known[0][0]:
            known[:] = [(generation, member)]
    return {tp: known[0][1] for tp, known in latest.items() if len(known) == 1}
