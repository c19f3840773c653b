"""Who leads a partition and who is in sync, whenever brokers come, go or leave.

Pure: a state and what is known of the brokers go in, the state to write comes out (None: it stands as it is).
A leader that stays while its ISR shrinks keeps its epoch (KAFKA-15021): the state's version alone says that there is
something new, and is what an ISR change in flight fails by. Everything else begins a new epoch.

Rules that hold for every result:
    A  a leader is alive and in the ISR;
    B  the ISR is never empty and only shrinks here (growing it is the leader's business);
    C  a leader is taken from the ISR of before: whoever else may lead is not chosen here
       (`cluster.controller.unclean_recovery`);
    D  it is the old epoch only where the leader is the same and the ISR is a part of what it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cluster.state import PartitionState
from tidelog.errors import (
    BrokerError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from tidelog.model import NO_LEADER


def initial_state(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first state of a new partition: all live replicas are in sync, for there is nothing to miss.

    The first of them, the preferred leader if it lives, leads. None while no replica lives.
    """
    isr = tuple(replica for replica in replicas if replica in live)
    return PartitionState(isr[0], 0, isr, controller_epoch) if isr else None


def next_state(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    *,
    leaving: Collection[int] = (),
    evict_leaving: bool = False,
    renew: bool = False,
) -> PartitionState | None:
    """The state that a partition should have now.

    leaving         live brokers in a controlled shutdown: they lead nothing that somebody else can lead
    evict_leaving   also take them out of the ISR; done once, when the shutdown begins
    renew           a leader that stays gets a new epoch too, so that nothing it has in flight is accepted
    """
    in_sync = [r for r in replicas if r in state.isr and r in live and r not in leaving]
    keeps = [r for r in state.isr if r in live and not (evict_leaving and r in leaving)]
    leads_on = state.leader in live and state.leader in state.isr

    if leads_on and (state.leader not in leaving or not in_sync):
        # Case A: the leader stays, be it that nobody can take over from one that leaves.
        isr = tuple(keeps) if state.leader in keeps else (*keeps, state.leader)
        if renew or set(isr) != set(state.isr):
            return state.rewritten(state.leader, isr, controller_epoch, begins=renew)
        return None
    if in_sync:
        # Case B: the first in-sync replica, in the order of the assignment, takes over.
        leader, isr = in_sync[0], tuple(keeps)
    else:
        # Case C: nobody may lead. The ISR stays: any of its members, and nobody else, has all that was acknowledged.
        leader, isr = NO_LEADER, state.isr
    return _changed(state, leader, isr, controller_epoch)


def renewed_state(state: PartitionState, controller_epoch: int) -> PartitionState:
    """The same leader in a new epoch."""
    return state.rewritten(state.leader, state.isr, controller_epoch)


def preferred_state(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Leadership moved to the assignment's first replica, where that one is alive and in sync."""
    preferred = replicas[0]
    if preferred not in live or preferred not in state.isr:
        return None
    return _changed(state, preferred, state.isr, controller_epoch)


def election_refusal(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], *, unclean: bool
) -> BrokerError | None:
    """Why an election that somebody asks for changes nothing: it is not needed, or nobody could be elected.

    unclean   whoever lives may be elected where the ISR does not; else the preferred leader is asked for
    """
    if unclean:
        if state.leader in live:
            return ElectionNotNeededError(f"broker {state.leader} leads")
        if not any(replica in live for replica in replicas):
            return EligibleLeadersNotAvailableError(f"none of the replicas {_names(replicas)} is alive")
        return None
    preferred = replicas[0]
    if state.leader == preferred and preferred in live:
        return ElectionNotNeededError(f"broker {preferred} leads already")
    if preferred not in live:
        return PreferredLeaderNotAvailableError(f"broker {preferred} is not alive, or is leaving")
    if preferred not in state.isr:
        return PreferredLeaderNotAvailableError(f"broker {preferred} is not in sync")
    return None


def _names(replicas: Sequence[int]) -> str:
    return ", ".join(map(str, replicas))


def _changed(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState | None:
    if leader == state.leader and set(isr) == set(state.isr):
        return None
    return state.rewritten(leader, isr, controller_epoch)
