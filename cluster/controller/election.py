"""The leader and the ISR of a partition when brokers start, fail or shut down.

Pure: a state and facts about the brokers go in. The state to write comes out, or None if the state stays as it is. A
leader that stays while its ISR shrinks keeps its epoch (KAFKA-15021). Only the state's version shows the change then,
and an ISR change in flight fails by that version. Every other change begins a new epoch.

Rules that hold for every result:
    A  a leader is alive and in the ISR;
    B  the ISR is never empty and only shrinks here (only the leader expands it);
    C  a leader is taken from the previous ISR; other candidates are considered only in
       `cluster.controller.unclean_recovery`;
    D  the leader epoch stays only if the leader stays and the new ISR is a subset of the previous one.
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
    """Return the first state of a new partition, or None while no replica is alive.

    All live replicas are in sync, because there are no records to miss. The first live replica leads in epoch 0.
    """
    isr = tuple(replica for replica in replicas if replica in live)
    return PartitionState(isr[0], 0, isr, controller_epoch) if isr else None


def next_state(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    *,
    shutting_down: Collection[int] = (),
    evict_shutting_down: bool = False,
    renew: bool = False,
) -> PartitionState | None:
    """Return the state that a partition should have now, or None if it already has it.

    A live leader in the ISR stays, and the ISR loses its dead members. Otherwise the first live ISR member in the order
    of `replicas` that is not shutting down leads a new epoch. If there is none, the leader is −1 and the ISR stays.

    shutting_down         live brokers in a controlled shutdown. A leader among them stays only if no other ISR member
                          can lead, and a follower among them never becomes leader
    evict_shutting_down   also remove them from the ISR, except a leader that stays. If no replica can lead, the ISR
                          stays whole. Used once, when the shutdown begins
    renew                 a leader that stays gets a new epoch too, so that its requests in flight are refused
    """
    in_sync = [r for r in replicas if r in state.isr and r in live and r not in shutting_down]
    keeps = [r for r in state.isr if r in live and not (evict_shutting_down and r in shutting_down)]
    leads_on = state.leader in live and state.leader in state.isr

    if leads_on and (state.leader not in shutting_down or not in_sync):
        # Case A: the leader stays. A leader that shuts down stays if no other replica can take over.
        isr = tuple(keeps) if state.leader in keeps else (*keeps, state.leader)
        if renew or set(isr) != set(state.isr):
            return state.rewritten(state.leader, isr, controller_epoch, new_epoch=renew)
        return None
    if in_sync:
        # Case B: the first in-sync replica in the order of the assignment takes over.
        leader, isr = in_sync[0], tuple(keeps)
    else:
        # Case C: no replica may lead. The ISR stays, because only its members have all acknowledged records.
        leader, isr = NO_LEADER, state.isr
    return _changed(state, leader, isr, controller_epoch)


def renewed_state(state: PartitionState, controller_epoch: int) -> PartitionState:
    """Return the state with the same leader and ISR in a new leader epoch."""
    return state.rewritten(state.leader, state.isr, controller_epoch)


def preferred_state(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state led by the preferred (first) replica in a new epoch, with the same ISR.

    None if that replica is not alive, is not in the ISR, or leads already.
    """
    preferred = replicas[0]
    if preferred not in live or preferred not in state.isr:
        return None
    return _changed(state, preferred, state.isr, controller_epoch)


def election_refusal(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], *, unclean: bool
) -> BrokerError | None:
    """Return why a requested election must be refused: it is not needed, or no replica is electable.

    None if it may begin.

    unclean   the election is for a partition whose leader is not alive, and any live replica may be elected. Otherwise
              only the preferred leader may, if it is alive and in the ISR

    `live` holds the brokers that may be elected; brokers in a controlled shutdown are left out.
    """
    if unclean:
        if state.leader in live:
            return ElectionNotNeededError(f"broker {state.leader} already leads")
        if not any(replica in live for replica in replicas):
            return EligibleLeadersNotAvailableError(f"none of the replicas {_names(replicas)} is alive")
        return None
    preferred = replicas[0]
    if state.leader == preferred and preferred in live:
        return ElectionNotNeededError(f"broker {preferred} already leads")
    if preferred not in live:
        return PreferredLeaderNotAvailableError(f"broker {preferred} is not alive, or is shutting down")
    if preferred not in state.isr:
        return PreferredLeaderNotAvailableError(f"broker {preferred} is not in sync")
    return None


def _names(replicas: Sequence[int]) -> str:
    return ", ".join(map(str, replicas))


def _changed(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState | None:
    if leader == state.leader and set(isr) == set(state.isr):
        return None
    return state.rewritten(leader, isr, controller_epoch)
