"""The work of a group's leader: it reads the subscriptions and assigns the partitions. The functions are pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tidelog.errors import CorruptMessageError
from tidelog.groups.assignment.assignors import ASSIGNORS, Candidate
from tidelog.groups.assignment.consumer_protocol import Subscription, decode_subscription, encode_assignment
from tidelog.protocol.group_messages import JoinGroupMember, SyncGroupAssignment

_log = logging.getLogger(__name__)


def candidates(members: Iterable[JoinGroupMember]) -> list[Candidate]:
    """Return the members with their subscriptions. A member whose subscription is unreadable gets no topics."""
    found = []
    for member in members:
        try:
            subscription = decode_subscription(member.metadata)
        except CorruptMessageError as error:
            _log.warning("the subscription of member %r cannot be read: %s", member.member_id, error)
            subscription = Subscription(())
        found.append(Candidate(member.member_id, member.group_instance_id, subscription))
    return found


def topics_of(members: Iterable[Candidate]) -> set[str]:
    """Return all topics to which at least one member subscribes."""
    return {topic for member in members for topic in member.subscription.topics}


def assign(assignor: str, members: list[Candidate], counts: Mapping[str, int]) -> tuple[SyncGroupAssignment, ...]:
    """Return each member's encoded assignment, computed by the assignor of this name.

    counts   the number of partitions of each topic, 0 if the topic does not exist
    """
    existing = {topic: count for topic, count in counts.items() if count}
    given = ASSIGNORS[assignor](members, existing)
    return tuple(SyncGroupAssignment(member_id, encode_assignment(tps)) for member_id, tps in given.items())
