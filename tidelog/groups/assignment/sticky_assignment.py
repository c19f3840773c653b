"""Computes the assignment of the sticky assignors: as even as possible, with few moves. The class is pure.

A chain is a sequence of moves, each of one partition from a member to the next, which subscribes to the partition's
topic. An assignment is as even as possible when no chain ends at a member that has two partitions less than the member
at its beginning (Harvey et al., "Semi-matchings for bipartite graphs and load balancing", 2003). The loads of an even
assignment do not depend on the chosen chains.

Partitions without a previous owner move first, because their moves cost no member anything. Therefore, if some
partitions of an assignment are withheld, the same assignment results when they are free, and no other partition moves.
Cooperative rebalancing needs this property.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tidelog.model import TopicPartition

#: One move of a chain: from a member, a partition of a topic, to a member.
_Link = tuple[str, str, str]
#: The partitions of each member, by topic. No list is empty.
_Held = dict[str, dict[str, list[TopicPartition]]]


class Balance:
    """An even assignment of the partitions, computed at construction.

    subscribers   the members that subscribe to each topic
    owners        the previous owner of each partition, which counts only if it still subscribes to the topic
    """

    def __init__(
        self,
        members: Iterable[str],
        subscribers: Mapping[str, Sequence[str]],
        partitions: Iterable[TopicPartition],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self._subscribers = subscribers
        self._loads = dict.fromkeys(members, 0)
        # `_fresh` has the partitions that may move without cost, `_kept` those that their previous owner still has.
        self._fresh: _Held = {member: {} for member in self._loads}
        self._kept: _Held = {member: {} for member in self._loads}
        able = {topic: set(theirs) for topic, theirs in subscribers.items()}
        self._owners: dict[TopicPartition, str] = {}
        rest = []
        for tp in partitions:
            owner = owners.get(tp)
            if owner in able[tp.topic]:
                self._owners[tp] = owner
                self._give(self._kept, owner, tp)
            else:
                rest.append(tp)
        # Partitions with few subscribers come first, while all of these have little load.
        for tp in sorted(rest, key=lambda tp: len(able[tp.topic])):
            self._give(self._fresh, min(subscribers[tp.topic], key=self._loads.__getitem__), tp)
        self._even_out(fresh_only=True)
        self._even_out(fresh_only=False)
        self._return_to_owners()

    @property
    def given(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each member, in order; an empty list for a member without any."""
        return {
            member: sorted(tp for held in (self._kept, self._fresh) for tps in held[member].values() for tp in tps)
            for member in self._loads
        }

    def _even_out(self, *, fresh_only: bool) -> None:
        """Follow chains from the most loaded member down. A member from which no chain starts now never gets one."""
        left = dict.fromkeys(self._loads)
        while left:
            begin = max(left, key=self._loads.__getitem__)
            chain = self._chain(begin, self._loads[begin] - 2, fresh_only=fresh_only)
            for link in chain:
                self._move(*link)
            if not chain:
                del left[begin]

    def _return_to_owners(self) -> None:
        """Give partitions back to their previous owners, if a fresh partition can move instead."""
        for member, held in self._fresh.items():
            for tp in [tp for tps in held.values() for tp in tps if tp in self._owners]:
                if tp in held.get(tp.topic, ()):
                    self._maybe_return(tp, member, self._owners[tp])

    def _maybe_return(self, tp: TopicPartition, member: str, owner: str) -> None:
        self._take(self._fresh, member, tp)
        self._give(self._kept, owner, tp)
        if self._loads[owner] <= self._loads[member] + 1:
            return
        chain = self._chain(owner, self._loads[member], fresh_only=True)
        for link in chain:
            self._move(*link)
        if not chain:
            self._take(self._kept, owner, tp)
            self._give(self._fresh, member, tp)

    def _chain(self, begin: str, enough: int, *, fresh_only: bool) -> list[_Link]:
        """Return the cheapest chain to a member with at most `enough` partitions, the last move first; [] if none.

        The chain has the fewest moves of kept partitions, and among these ends at the least loaded member.
        """
        if min(self._loads.values()) > enough:
            return []
        came: dict[str, _Link | None] = {begin: None}
        topics: set[str] = set()
        frontier = [begin]
        while frontier:
            # First follow all moves of fresh partitions, which cost nothing. The list grows during the loop.
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
        """Move the partition that the member got last, because it has used that partition for the shortest time."""
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
    """Return the member that claims each partition in the latest generation, from (partition, generation, member).

    If two members claim a partition in that generation, it has no owner (KAFKA-12984).
    """
    latest: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for tp, generation, member in claims:
        known = latest[tp]
        if not known or generation == known[0][0]:
            known.append((generation, member))
        elif generation > known[0][0]:
            known[:] = [(generation, member)]
    return {tp: known[0][1] for tp, known in latest.items() if len(known) == 1}
