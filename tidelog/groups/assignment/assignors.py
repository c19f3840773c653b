"""The assignors of Kafka's consumers, by their names. The group's leader runs one of them. The functions are pure.

range               assigns topic by topic: each member gets a contiguous run of partitions, so that partitions of equal
                    number in several topics go to the same member
roundrobin          assigns all partitions in turn
sticky              assigns evenly, and among even assignments chooses one that moves few partitions
cooperative-sticky  as sticky, but a partition that changes its owner is revoked first, and assigned a generation later
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
    """A member of the group, as the group's leader sees it; `instance_id` is None for a dynamic member."""

    member_id: str
    instance_id: str | None
    subscription: Subscription


Assignments = dict[str, list[TopicPartition]]
#: Assigns partitions to members. The mapping has the number of partitions of each topic; it lacks missing topics.
Assignor = Callable[[Sequence[Candidate], Mapping[str, int]], Assignments]


def assign_ranges(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """Assign to each subscriber a run of each topic's partitions. The first subscribers get one more if needed.

    Static members come first, by instance id, then the others by member id.
    """
    given: Assignments = {member.member_id: [] for member in members}
    for topic, subscribers in _subscribers(members, topics).items():
        least, more = divmod(topics[topic], len(subscribers))
        begin = 0
        for nth, member in enumerate(subscribers):
            end = begin + least + (nth < more)
            given[member.member_id] += [TopicPartition(topic, partition) for partition in range(begin, end)]
            begin = end
    return given


def assign_round_robin(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """Assign each partition to the next member that subscribes to its topic, topic by topic in order.

    Members take turns in the order of `assign_ranges`.
    """
    given: Assignments = {member.member_id: [] for member in members}
    circle = cycle(sorted(members, key=_order))
    for topic in _subscribers(members, topics):
        for partition in range(topics[topic]):
            member = next(each for each in circle if topic in each.subscription.topics)
            given[member.member_id].append(TopicPartition(topic, partition))
    return given


def assign_sticky(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """Assign to each member the partitions that it owned, if that is even, and the others to the least loaded."""
    held = {}
    for member in members:
        # An eager member owns nothing when it joins. Its user data has the partitions of its last assignment.
        previous = decode_member_data(member.subscription.user_data)
        held[member.member_id] = previous or _held(member)
    return _balanced(members, topics, held)


def assign_cooperatively(members: Sequence[Candidate], topics: Mapping[str, int]) -> Assignments:
    """Assign as `assign_sticky` does, but leave out each partition that another member still owns.

    The next generation assigns these partitions.
    """
    held = {member.member_id: _held(member) for member in members}
    holders: dict[TopicPartition, set[str]] = defaultdict(set)
    for member_id, data in held.items():
        for tp in data.partitions:
            holders[tp].add(member_id)
    given = _balanced(members, topics, held)
    return {
        member_id: [tp for tp in tps if tp not in holders or member_id in holders[tp]]
        for member_id, tps in given.items()
    }


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_ranges,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperatively,
}


def _held(member: Candidate) -> MemberData:
    subscription = member.subscription
    generation = subscription.generation
    if generation < 0:
        # Before version 2 of the subscription, a cooperative member reported its generation only in its user data.
        generation = decode_generation(subscription.user_data)
    return MemberData(subscription.owned, generation)


def _balanced(
    members: Sequence[Candidate], topics: Mapping[str, int], held: Mapping[str, MemberData]
) -> dict[str, list[TopicPartition]]:
    subscribers = {topic: [m.member_id for m in able] for topic, able in _subscribers(members, topics).items()}
    partitions = [TopicPartition(topic, number) for topic in subscribers for number in range(topics[topic])]
    claims = ((tp, data.generation, member_id) for member_id, data in held.items() for tp in data.partitions)
    ids = [member.member_id for member in sorted(members, key=_order)]
    return Balance(ids, subscribers, partitions, latest_owners(claims)).given


def _subscribers(members: Collection[Candidate], topics: Mapping[str, int]) -> dict[str, list[Candidate]]:
    """Return the subscribers of each existing topic that has any. Topics and subscribers are in order."""
    subscribers: dict[str, list[Candidate]] = defaultdict(list)
    for member in sorted(members, key=_order):
        for topic in set(member.subscription.topics) & topics.keys():
            subscribers[topic].append(member)
    return dict(sorted(subscribers.items()))


def _order(member: Candidate) -> tuple[bool, str]:
    """Return the sort key of a member: static members first, by instance id, then the others by member id.

    So a restart of a static member does not change the assignment.
    """
    return member.instance_id is None, member.instance_id or member.member_id
