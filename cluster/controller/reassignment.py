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
from dataclasses import dataclass, field

from cluster.state import PartitionState, ReplicaAssignment


@dataclass(slots=True)
class ReassignmentProgress:
    """The progress of one partition's reassignment under this controller.

    announced      a leader epoch has begun since the assignment was written
    remaining      remaining ISR members that were asked whether they are alive, because a registration does not prove
                   it. The controller asks once before the removal and once after it. A member that joined later is
                   not counted, because it may have answered before it had all records
    asked          the liveness epoch in which they were asked (`cluster.controller.liveness`)
    removal_state  the state without the removed replicas, once it is chosen
    removed        that state was written
    confirmed      a remaining member has been alive since then
    waiting        live brokers that have not deleted their removed replica yet
    completing     the write of the completed assignment is under way
    """

    announced: bool = False
    remaining: frozenset[int] = frozenset()
    asked: int = 0
    removal_state: PartitionState | None = None
    removed: bool = False
    confirmed: bool = False
    waiting: set[int] = field(default_factory=set)
    completing: bool = False

    def wait_for(self, broker_id: int) -> None:
        """Wait until this broker has deleted its replica. A completion under way is then not final."""
        self.waiting.add(broker_id)
        self.completing = False

    def written(self, state: PartitionState) -> bool:
        """Note that a new leader epoch was written. Return whether it is the one that removes replicas.

        Only a new epoch is certain to reach the leader, because a request with a new version of an old epoch may be
        ignored as stale.
        """
        self.announced = True
        removes = not self.removed and state is self.removal_state
        self.removed = self.removed or removes
        return removes


def state_without_removed_replicas(
    state: PartitionState,
    assigned: ReplicaAssignment,
    live: Collection[int],
    shutting_down: Collection[int],
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState | None:
    """Return the state without the replicas to remove, or None while it is too early.

    All new replicas must be in sync, and so must all live replicas of the target. Dead ones are not required, because
    they may never come back, but the ISR must have at least `min_insync_replicas` members. If a removed replica leads,
    a remaining one takes over.
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
