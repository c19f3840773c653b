"""Decide which role this broker takes for a partition, when a LeaderAndIsr request says who leads it.

Pure. `role_changes.py` opens the logs, writes the fence and gives the replicas their roles as planned here.
"""

from __future__ import annotations

from enum import Enum

from storage.directory.leadership_checkpoint import Leadership
from tidelog.errors import (
    BrokerError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
)
from tidelog.frozen_dataclass import frozen
from tidelog.model import NO_LEADER
from tidelog.protocol.control_messages import PartitionStateMessage


class Damage(Enum):
    """The treatment of a damaged log.

    RESET    set the log aside and begin an empty one, to which all records are fetched again
    ACCEPT   use the log as if it were sound
    LEAVE    use the log and remember its damage, if there is any
    """

    RESET = "reset"
    ACCEPT = "accept"
    LEAVE = "leave"


@frozen
class LogPlan:
    """The way to open a log. `in_sync`: the cluster counts on its committed records, so that it must have them all."""

    in_sync: bool
    damage: Damage = Damage.LEAVE


class Role(Enum):
    """The planned role. A leaderless replica follows, but fetches from no broker until the next leader epoch."""

    LEADER = "leader"
    FOLLOWER = "follower"
    LEADERLESS = "leaderless"
    UNCHANGED = "unchanged"


@frozen
class KnownState:
    """The facts about a replica with which the controller's state is compared.

    log_epoch      the latest leader epoch in the log's epoch cache; None if the cache is empty
    leader_epoch   the partition's leader epoch since the start of this broker, or −1
    acted_on       the state that this broker has acted on last, also before its restart
    """

    log_epoch: int | None
    leader_epoch: int
    acted_on: Leadership | None


def plan_log(
    broker_id: int, state: PartitionStateMessage, *, topic_sent: bool, hosted: bool, damaged: bool
) -> LogPlan | BrokerError | None:
    """Return how to open the replica's log, None to use the hosted replica as it is, or why it must not be used.

    `topic_sent`: the request has the topic's id. `damaged`: the hosted log of this topic id is damaged.

    A. The topic id is missing: use the hosted replica. Without one, refuse with UnknownTopicIdError.
    B. The log is damaged, the replica is out of the ISR, and another broker leads: reset the log.
    C. The log is damaged, and the replica is in the ISR with others: refuse with IneligibleReplicaError, so that the
       controller chooses another leader and removes this replica from the ISR.
    D. The log is damaged, and the replica is the whole ISR, or is in the ISR while no broker leads: accept the log,
       because no other replica is better.
    E. The log is sound, or is damaged while the replica is out of the ISR and no broker leads: open it as it is.

    An unclean leader starts with the records that it has, even if that is none, so its log does not count as in sync.
    """
    if not topic_sent:  # A
        tp = f"{state.topic}-{state.partition}"
        return None if hosted else UnknownTopicIdError(f"{tp}: the controller sent no topic id")
    in_isr, has_leader = broker_id in state.isr, state.leader != NO_LEADER
    damage = Damage.LEAVE  # E
    if damaged and has_leader and not in_isr:  # B
        damage = Damage.RESET
    elif damaged and has_leader and state.isr != (broker_id,):  # C
        return IneligibleReplicaError(
            f"{state.topic}-{state.partition}: the log on broker {broker_id} is damaged; "
            "other in-sync replicas have all records"
        )
    elif damaged and in_isr:  # D
        damage = Damage.ACCEPT
    return LogPlan(in_isr and not (state.unclean and state.leader == broker_id), damage)


def plan_role(broker_id: int, state: PartitionStateMessage, known: KnownState) -> Role | BrokerError:
    """Return the replica's role, or why this broker must not act on the state (`fence_refusal`, cases A to C).

    D. This broker leads.
    E. Another broker leads: follow it.
    F. No broker leads: wait for the next leader epoch.
    """
    if refusal := fence_refusal(broker_id, state, known):
        return refusal
    if state.leader == broker_id:  # D
        return Role.LEADER
    return Role.LEADERLESS if state.leader == NO_LEADER else Role.FOLLOWER  # F, E


def fence_refusal(broker_id: int, state: PartitionStateMessage, known: KnownState) -> BrokerError | None:
    """Return why this broker must not act on the state, or None if it may once the fence is written.

    A. The log has records of a later epoch: FencedLeaderEpochError.
    B. The broker has acted on a later state, or on another leader of the same epoch: FencedLeaderEpochError.
       Each write of the state raises its version, so a later epoch in an earlier version also proves lost writes.
    C. The broker has led in this epoch before its restart: NotLeaderOrFollowerError. Requests in flight from
       before the restart would count again, so the controller must begin a new epoch.
    """
    epoch, version, acted_on = state.leader_epoch, state.partition_epoch, known.acted_on
    if known.log_epoch is not None and known.log_epoch > epoch:  # A
        # The fault of a restored ZooKeeper (verify/chaos) looks for this text in the broker's log.
        return FencedLeaderEpochError(f"the log has epoch {known.log_epoch}, the controller says {epoch}")
    if acted_on is None:
        return None
    same = (acted_on.epoch, acted_on.leader) == (epoch, state.leader)
    if same and known.leader_epoch >= epoch:
        return None  # acted on since the start, so an older version is only a repeated request
    newer = epoch > acted_on.epoch and version > acted_on.partition_epoch
    if not newer and not (same and version >= acted_on.partition_epoch):  # B
        before = _describe(acted_on.epoch, acted_on.leader, acted_on.partition_epoch)
        return FencedLeaderEpochError(
            f"this broker has acted on {before}, the controller says {_describe(epoch, state.leader, version)}"
        )
    if same and state.leader == broker_id:  # C
        return NotLeaderOrFollowerError(f"broker {broker_id} has led epoch {epoch} before its restart")
    return None


def recheck_role(
    planned: Role, state: PartitionStateMessage, leader_epoch: int, *, is_stale: bool
) -> Role | BrokerError:
    """Return the role to apply once the fence is written.

    The partition may know a later state by then, because its own ISR write has ended or has met a later leader epoch.
    `is_stale`: the planned state is older than the partition's, which has this `leader_epoch`.

    G. The partition knows a later leader epoch: refuse with FencedLeaderEpochError.
    H. The partition knows a later version in the same leader epoch: change nothing, because leader and epoch already
       hold. The request is a repetition that crossed with the leader's own ISR change.
    I. The partition knows no later state: apply the planned role.
    """
    if not is_stale:  # I
        return planned
    if state.leader_epoch == leader_epoch:  # H
        return Role.UNCHANGED
    return FencedLeaderEpochError(f"epoch {state.leader_epoch} is older than {leader_epoch}")  # G


def _describe(epoch: int, leader: int, partition_epoch: int) -> str:
    return f"epoch {epoch} under broker {leader} in version {partition_epoch}"
