"""How a partition moves from one set of replicas to another (KIP-455), in steps that survive a controller failure.

The topic's znode holds the target. The controller writes it before the first step and after the last. Between the two:

    announced   a new leader epoch was written; its leader knows all replicas, and expands the ISR as new ones catch up
    removed     a second new epoch was written, without the replicas to remove. Before that, all new replicas were in
                sync, and one of the remaining members proved that it is alive. The new epoch's leader knows only the
                target, so that a removed replica never joins the ISR again
    confirmed   a remaining member was alive after that write. Until then removed replicas stop but keep their logs;
                now they delete their logs
    completed   all live removed replicas have deleted their logs, and the target becomes the assignment

A new controller finds an unfinished assignment and repeats `announced` and `removed`, which costs only a new epoch. The
same controller repeats them if, before `confirmed`, a replica is elected that may lack records, because a removed
replica may have them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cluster.state import PartitionState, ReplicaAssignment
from tidelog.frozen_dataclass import frozen


@frozen
class ReassignmentProgress:
    """The progress of one partition's reassignment under this controller; replaced whole.

    announced          a leader epoch has begun since the assignment was written
    remaining          remaining ISR members that were asked whether they are alive, because a registration does not
                       prove it. The controller asks once before the removal and once after it. A member that joined
                       later is not counted, because it may have answered before it had all records
    asked              the liveness epoch in which `remaining` were asked (`cluster.controller.liveness`)
    removal_in_flight  the state without the removed replicas is being written
    removed            that state was written
    confirmed          a remaining member has been alive since then
    deleting           live brokers that have not deleted their removed replica yet
    completing         the write of the completed assignment is under way
    """

    announced: bool = False
    remaining: frozenset[int] = frozenset()
    asked: int = 0
    removal_in_flight: bool = False
    removed: bool = False
    confirmed: bool = False
    deleting: frozenset[int] = frozenset()
    completing: bool = False

    def with_request(self, members: Collection[int], liveness_epoch: int) -> ReassignmentProgress:
        """Return the progress when these remaining members are asked whether they are alive. Earlier questions are
        dropped.
        """
        return replace(self, remaining=frozenset(members), asked=liveness_epoch)

    def without_request(self) -> ReassignmentProgress:
        """Return the progress without the question to remaining members, because its answers prove nothing any more."""
        return replace(self, remaining=frozenset())

    def with_removal_in_flight(self) -> ReassignmentProgress:
        """Return the progress when the state without the removed replicas is being written. Earlier questions are
        dropped.
        """
        return replace(self, remaining=frozenset(), removal_in_flight=True)

    def without_removal_in_flight(self) -> ReassignmentProgress:
        """Return the progress when the write of the state without the removed replicas was refused."""
        return replace(self, removal_in_flight=False)

    def with_new_epoch(self) -> ReassignmentProgress:
        """Return the progress when a new leader epoch was written: announced, and removed if the removal was in flight.

        Only a new epoch is certain to reach the leader, because a request with a new version of an old epoch may be
        ignored as stale.
        """
        return replace(self, announced=True, removed=self.removed or self.removal_in_flight, removal_in_flight=False)

    def with_confirmation(self) -> ReassignmentProgress:
        """Return the progress when a remaining member has been alive since the removal. Questions are dropped."""
        return replace(self, remaining=frozenset(), confirmed=True)

    def with_deletion_by(self, broker_id: int) -> ReassignmentProgress:
        """Return the progress when this broker has to delete its replica. A completion under way is then not final."""
        return replace(self, deleting=self.deleting | {broker_id}, completing=False)

    def without_deletion_by(self, broker_id: int) -> ReassignmentProgress:
        """Return the progress when this broker has deleted its replica, or has failed."""
        return replace(self, deleting=self.deleting - {broker_id})


def state_without_removed_replicas(
    state: PartitionState,
    assigned: ReplicaAssignment,
    live: Collection[int],
    shutting_down: Collection[int],
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState | None:
    """Return the state without the replicas to remove, in a new leader epoch, or None while it is too early.

    All new replicas must be in sync, and so must all live replicas of the target. Dead ones are not required, because
    they may never come back. But the ISR must have `min_insync_replicas` members, or all of a smaller target, and one
    of them must be live. If a removed replica leads, a remaining one takes over.
    """
    target = assigned.target
    isr = tuple(replica for replica in state.isr if replica in target)
    awaited = set(assigned.joining).union(replica for replica in target if replica in live)
    if not awaited <= set(isr) or len(isr) < max(1, min(len(target), min_insync_replicas)):
        return None
    remaining = [replica for replica in target if replica in isr and replica in live]
    remaining = [replica for replica in remaining if replica not in shutting_down] or remaining
    if not remaining:
        return None
    leader = state.leader if state.leader in remaining else remaining[0]
    return state.rewritten(leader, isr, controller_epoch, removes_replicas=True)
