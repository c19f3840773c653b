"""How a partition goes from one set of replicas to another (KIP-455), in steps that a controller may die between.

The assignment's znode says where to go; it is written first, and once more at the end. Between the two:

    announced   the state is written in a new epoch, whose leader is told of all replicas, and lets in who catches up
    shed        all that were to come are in sync, and one of the heirs has shown that it lives: the state is written
                without those that go, again in a new epoch, whose leader knows the target alone, so that nobody who
                goes is ever let in again
    safe        an heir has shown that it has outlived that: those that go, who until then lead no more but have their
                logs, are to delete them
    left        they have done so, as far as they live; now the assignment is the target

The next controller finds the assignment on its way, and announces and sheds again: a new epoch, and no harm. So does
this one where, before all is safe, somebody is elected who may not have everything: those that go may have more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from cluster.state import PartitionState, ReplicaAssignment


@dataclass(slots=True)
class ReassignmentProgress:
    """What became of one partition's reassignment in this reign.

    announced   an epoch has begun since the assignment was written
    heirs       members of the ISR that were asked whether they live, for their registrations do not prove it: once to
                shed and once behind it. One that joins later may have answered before it had everything
    asked       at which moment they were asked (`cluster.controller.liveness`)
    shedding    the state that sheds, once it is chosen
    shed        it stands
    safe        an heir has lived since
    waiting     live brokers that have yet to say that they are rid of their replica
    settling    the assignment is being written for the last time
    """

    announced: bool = False
    heirs: frozenset[int] = frozenset()
    asked: int = 0
    shedding: PartitionState | None = None
    shed: bool = False
    safe: bool = False
    waiting: set[int] = field(default_factory=set)
    settling: bool = False

    def wait_for(self, broker_id: int) -> None:
        """It may have a replica to be rid of: an end that is on its way comes without it, or begins anew after it."""
        self.waiting.add(broker_id)
        self.settling = False

    def written(self, state: PartitionState) -> bool:
        """The controller began an epoch of the partition. True where that shed who goes.

        Only a new epoch is sure to reach the leader: a version alone may be old when it is told.
        """
        self.announced = True
        sheds = not self.shed and state is self.shedding
        self.shed = self.shed or sheds
        return sheds


def state_without_removed_replicas(
    state: PartitionState,
    assigned: ReplicaAssignment,
    live: Collection[int],
    leaving: Collection[int],
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState | None:
    """The state without those that go; None while it is too early for it.

    Who comes has to be in sync, and of the target everybody who lives; not the dead, who may never come back, but
    as many as `min_insync_replicas` asks for. One who stays takes over where one who goes has led.
    """
    target = assigned.target
    isr = tuple(replica for replica in state.isr if replica in target)
    awaited = set(assigned.joining).union(replica for replica in target if replica in live)
    if not awaited <= set(isr) or len(isr) < max(1, min(len(target), min_insync_replicas)):
        return None
    heirs = [replica for replica in target if replica in isr and replica in live]
    heirs = [replica for replica in heirs if replica not in leaving] or heirs
    if not heirs:
        return None
    leader = state.leader if state.leader in heirs else heirs[0]
    return state.rewritten(leader, isr, controller_epoch, sheds=True)
