"""Who consumes what: the assignors of Kafka's consumers, by their names. Pure; the group's leader runs one of them.

range               topic by topic, each member a run of partitions: those of equal number stay together
roundrobin          all partitions in turn
sticky              even, and of that what changes least
cooperative-sticky  the same; what changes its owner is taken from the old one first, and given in the next generation
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import cycle

from tidelog.frozen import frozen
from tidelog.groups.consumer_protocol import Subscription
from tidelog.groups.sticky_memory import Memory, decode_memory
from tidelog.model import TopicPartition


@frozen
class Candidate:
    """A member as its leader sees it."""

    member_id: str
    instance_id: str | None
    subscription: Subscription


Assignments = dict[str, list[TopicPartition]]
#: The members, and how many partitions each topic has; topics that do not exist are not among them.
Assignor = Callable[[Sequence[Candidate], Mapping[str, int]], Assignments]


def assign_ranges(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """Of each topic a run to each subscriber; the first ones get one more where it does not come out even."""
    given: Assignments = {member.member_id: [] for member in members}
    for topic, subscribers in _subscribers(members, topics).items():
        least, more = divmod(topics[topic], len(subscribers))
        begin = 0
        for nth, member in enumerate(subscribers):
            end = begin + least + (nth < more)
            given[member.member_id] += [TopicPartition(topic, partition) for partition in range(begin, end)]
            begin = end
    return given


def assign_in_turn(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """Partition by partition to the next member that subscribes to its topic."""
    given: Assignments = {member.member_id: [] for member in members}
    circle = cycle(sorted(members, key=_order))
    for topic in _subscribers(members, topics):
        for partition in range(topics[topic]):
            member = next(each for each in circle if topic in each.subscription.topics)
            given[member.member_id].append(TopicPartition(topic, partition))
    return given


def assign_sticky(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """What each had, as far as that is even, and the rest to those that have least."""
    memories = {}
    for member in members:
        # An eager member has given up everything when it joins, and tells what it had in its assignor's own words.
        told = decode_memory(member.subscription.user_data)
        memories[member.member_id] = told or Memory(member.subscription.owned, member.subscription.generation)
    return _Balance(members, topics, memories).given


def assign_cooperatively(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """As `assign_sticky`, but nobody is given what another one still holds."""
    held = {m.member_id: Memory(m.subscription.owned, m.subscription.generation) for m in members}
    given = _Balance(members, topics, held).given
    holders = {tp: member_id for member_id, memory in held.items() for tp in memory.partitions}
    return {who: [tp for tp in tps if holders.get(tp, who) == who] for who, tps in given.items()}


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_ranges,
    "roundrobin": assign_in_turn,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}


class _Balance:
    """Begins with what everybody had, hands out the rest, and moves single partitions while that makes it evener.

    given   member by member; it is even when nobody could take a partition from somebody who has two more
    """

    def __init__(self, members: Sequence[Candidate], topics: Mapping[str, int], memories: Mapping[str, Memory]) -> None:
        self._able = {topic: [m.member_id for m in able] for topic, able in _subscribers(members, topics).items()}
        self.given: Assignments = {member.member_id: [] for member in sorted(members, key=_order)}
        partitions = [TopicPartition(topic, number) for topic in self._able for number in range(topics[topic])]
        owners = _owners(memories)
        rest = []
        for tp in partitions:
            owner = owners.get(tp)
            if owner is not None and owner in self._able[tp.topic]:
                self.given[owner].append(tp)
            else:
                rest.append(tp)
        # Who has fewer to choose from comes first, else they would find their members full.
        for tp in sorted(rest, key=lambda tp: len(self._able[tp.topic])):
            self.given[self._least(tp)].append(tp)
        while self._moves_one():
            pass
        for mine in self.given.values():
            mine.sort()

    def _least(self, tp: TopicPartition) -> str:
        return min(self._able[tp.topic], key=lambda member_id: len(self.given[member_id]))

    def _moves_one(self) -> bool:
        for member_id in sorted(self.given, key=lambda each: -len(self.given[each])):
            mine = self.given[member_id]
            # What came last goes first: it is the least that somebody is used to.
            for tp in reversed(mine):
                to = self._least(tp)
                if len(self.given[to]) + 1 < len(mine):
                    mine.remove(tp)
                    self.given[to].append(tp)
                    return True
        return False


def _owners(memories: Mapping[str, Memory]) -> dict[TopicPartition, str]:
    """Who had what last. Where two of one generation say so, neither is believed (KAFKA-12984)."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for member_id, memory in memories.items():
        for tp in memory.partitions:
            claims[tp].append((memory.generation, member_id))
    owners = {}
    for tp, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        latest = [member_id for generation, member_id in claimed if generation == newest]
        if len(latest) == 1:
            owners[tp] = latest[0]
    return owners


def _subscribers(members: Collection[Candidate], topics: Mapping[str, int]) -> dict[str, list[Candidate]]:
    """Of each topic that exists and that somebody wants; all in order."""
    wanted: dict[str, list[Candidate]] = defaultdict(list)
    for member in sorted(members, key=_order):
        for topic in set(member.subscription.topics) & topics.keys():
            wanted[topic].append(member)
    return dict(sorted(wanted.items()))


def _order(member: Candidate) -> tuple[bool, str]:
    """Static members first, by their instance ids, so that a restart changes nothing."""
    return member.instance_id is None, member.instance_id or member.member_id
