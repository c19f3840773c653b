"""What a group asks its node to do."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import BrokerError
from tidelog.frozen_dataclass import frozen


@frozen
class Joined:
    """The answer to a JoinGroup: a generation has begun.

    members   of all members, id, instance id and subscription, to the leader alone; nothing to the others
    skips     the leader is to keep the assignment that stands: it came back in the place of a static member (KIP-814)
    """

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skips: bool = False


@frozen
class Synced:
    """The answer to a SyncGroup: what the leader has assigned to this member, in the protocol's own form."""

    protocol_type: str
    protocol: str
    assignment: bytes


@frozen
class Answer:
    """To one who waits; an error where there is no better answer."""

    waiter: object
    outcome: Joined | Synced | BrokerError


@frozen
class Store:
    """Write the group as it stands, with these assignments; answer with `Group.stored` and this number."""

    number: int
    assignments: Mapping[str, bytes]


Outcome = Answer | Store
