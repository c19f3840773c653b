"""The effects that a group returns for its node to perform."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.errors import BrokerError
from tidelog.frozen_dataclass import frozen


@frozen
class Joined:
    """The answer to a JoinGroup: a generation has begun.

    members           id, instance id and subscription of all members for the leader; empty for other members
    skip_assignment   the leader keeps the current assignment, because a static leader has rejoined (KIP-814)
    """

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@frozen
class Synced:
    """The answer to a SyncGroup: the leader's assignment for this member, encoded by the protocol."""

    protocol_type: str
    protocol: str
    assignment: bytes


@frozen
class Answer:
    """Answer the request that `waiter` stands for, with a result or an error."""

    waiter: object
    outcome: Joined | Synced | BrokerError


@frozen
class StoreGroup:
    """Write the group's current state with these assignments; then call `Group.stored` with this number."""

    number: int
    assignments: Mapping[str, bytes]


GroupEffect = Answer | StoreGroup
