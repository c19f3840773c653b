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

from tidelog.frozen_dataclass import frozen
from tidelog.groups.assignment.consumer_protocol import Subscription
from tidelog.groups.assignment.sticky_assignment import Balance, latest_owners
from tidelog.groups.assignment.sticky_user_data import MemberData, decode_generation, decode_member_data
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
    held = {}
    for member in members:
        # An eager member has given up everything when it joins, and tells what it had in its assignor's own words.
        told = decode_member_data(member.subscription.user_data)
        held[member.member_id] = told or _held(member)
    return _balanced(members, topics, held)


def assign_cooperatively(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """As `assign_sticky`, but nobody is given what another one still holds: that is free in the next generation."""
    held = {member.member_id: _held(member) for member in members}
    holders: dict[TopicPartition, set[str]] = defaultdict(set)
    for member_id, data in held.items():
        for tp in data.partitions:
            holders[tp].add(member_id)
    given = _balanced(members, topics, held)
    return {who: [tp for tp in tps if tp not in holders or who in holders[tp]] for who, tps in given.items()}


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_ranges,
    "roundrobin": assign_in_turn,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}


def _held(member: Candidate) -> MemberData:
    subscription = member.subscription
    generation = subscription.generation
    if generation < 0:
        # Before version 2 a cooperative member could say so in its assignor's own words alone.
        generation = decode_generation(subscription.user_data)
    return MemberData(subscription.owned, generation)


def _balanced(
    members: Sequence[Candidate], topics: Mapping[str, int], held: Mapping[str, MemberData]
) -> dict[str, list[TopicPartition]]:
    subscribers = {topic: [m.member_id for m in able] for topic, able in _subscribers(members, topics).items()}
    partitions = [TopicPartition(topic, number) for topic in subscribers for number in range(topics[topic])]
    claims = ((tp, data.generation, who) for who, data in held.items() for tp in data.partitions)
    ids = [member.member_id for member in sorted(members, key=_order)]
    return Balance(ids, subscribers, partitions, latest_owners(claims)).given


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
