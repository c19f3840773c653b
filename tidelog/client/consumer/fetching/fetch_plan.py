"""Decide which request each assigned partition needs next, and collect the requests of one turn of the fetcher.

`next_step` has these cases, one or more for each state:

    A  AwaitingCommit: look up the group's committed offset
    B  any other state, and no leader is known: find the leader
    C  Fetching: fetch
    D  Validating, but the metadata shows another topic of this name: fetch. The metadata may be old; the answer decides
    E  Validating, and records of a later epoch than the leader's were read: look for the later leader for a while
    F  Validating: ask the leader whether it has the records before the position
    G  Resetting or Failed, and the topic was deleted and created again: apply auto_offset_reset to the new topic
    H  Resetting: look up the offset, at an end of the log or at a time
    I  Failed: report to the reader that there is no position

While the pause after a failure of the same leader (A: of the coordinator) lasts, the step is to wait, except in case B.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.position_state import AwaitingCommit, Fetching, Resetting, Validating
from tidelog.client.metadata import Leader
from tidelog.model import TopicPartition

#: Brokers learn of a new leader at different times; an epoch that no broker reports for longer does not exist.
LATER_LEADER_GRACE_MS = 3_000


class Step(Enum):
    """The next step of the fetcher for a partition."""

    FIND_COMMIT = auto()
    FIND_LEADER = auto()
    WAIT = auto()
    FETCH = auto()
    FIND_LATER_LEADER = auto()
    VALIDATE = auto()
    RESET = auto()
    FIND_END = auto()
    FIND_TIME = auto()
    REPORT_NO_POSITION = auto()


#: The steps that are requests to a leader, the most frequent one first.
LEADER_REQUESTS = (Step.FETCH, Step.VALIDATE, Step.FIND_END, Step.FIND_TIME)


class RequestedPartition(NamedTuple):
    """A partition in a request to its leader, with its generation when the request was made."""

    partition: AssignedPartition
    generation: int
    leader: Leader

    @property
    def is_current(self) -> bool:
        """Return whether the partition is assigned and its position unchanged since the request was made."""
        return self.partition.generation == self.generation


#: The partition that must be the only one of its request, or None.
_Alone = TopicPartition | None


@dataclass(slots=True)
class FetchPlan:
    """The requests that one turn of the fetcher sends.

    commits       look-ups of committed offsets
    look_ups      look-ups and validations of positions, by step and leader
    fetches       fetches, by leader
    later_ms      when the next turn is due, if nothing happens before; None: only when an event wakes the fetcher
    leaderless    whether a partition waits for a leader
    missing       whether a partition does not exist, as far as this client knows
    """

    commits: defaultdict[_Alone, list[AssignedPartition]] = field(default_factory=lambda: defaultdict(list))
    look_ups: defaultdict[tuple[Step, int, _Alone], list[RequestedPartition]] = field(
        default_factory=lambda: defaultdict(list)
    )
    fetches: defaultdict[tuple[int, _Alone], list[RequestedPartition]] = field(
        default_factory=lambda: defaultdict(list)
    )
    later_ms: int | None = None
    leaderless: bool = False
    missing: bool = False

    def add(self, step: Step, partition: AssignedPartition, leader: Leader) -> None:
        """Put the partition into the request of this kind to its leader; `is_alone` makes a request of its own."""
        alone = partition.topic_partition if partition.is_alone else None
        requested = RequestedPartition(partition, partition.generation, leader)
        if step is Step.FETCH:
            self.fetches[leader.broker_id, alone].append(requested)
        else:
            self.look_ups[step, leader.broker_id, alone].append(requested)

    def add_commit(self, partition: AssignedPartition) -> None:
        """Put the partition into the look-up of committed offsets; `is_alone` makes a request of its own."""
        self.commits[partition.topic_partition if partition.is_alone else None].append(partition)

    def retry_at(self, at_ms: int) -> None:
        """Ask for a turn of the fetcher at this time (ms, monotonic clock) at the latest."""
        self.later_ms = at_ms if self.later_ms is None else min(self.later_ms, at_ms)


def needs_step(partition: AssignedPartition, *, has_room: bool) -> bool:
    """Return whether the partition needs a step now; never while a request of the partition is in flight.

    A missing position is always looked up. Records are fetched if the fetcher has room, the partition is not paused,
    and its buffer has space.
    """
    if partition.is_busy:
        return False
    buffer = partition.buffer
    return buffer is None or (has_room and not partition.paused and buffer.has_space)


def next_step(partition: AssignedPartition, leader: Leader | None, now_ms: int) -> Step:
    """Return the next step for a partition that needs one; the module's docstring has the cases."""
    if isinstance(partition.state, AwaitingCommit):
        leader, step = None, Step.FIND_COMMIT  # A: the group's coordinator is asked
    elif leader is None:
        return Step.FIND_LEADER  # B
    else:
        step = _step_with(leader, partition, now_ms)
    return Step.WAIT if partition.retry.must_wait(leader, now_ms) else step


def _step_with(leader: Leader, partition: AssignedPartition, now_ms: int) -> Step:
    state, is_same_topic = partition.state, partition.topic_id == leader.topic_id
    if isinstance(state, Fetching):
        return Step.FETCH  # C
    if isinstance(state, Validating):
        if not is_same_topic:
            return Step.FETCH  # D
        return Step.FIND_LATER_LEADER if _is_behind(leader, partition, state, now_ms) else Step.VALIDATE  # E, F
    if not is_same_topic:
        return Step.RESET  # G
    if isinstance(state, Resetting):
        return Step.FIND_END if state.to < 0 else Step.FIND_TIME  # H
    return Step.REPORT_NO_POSITION  # I


def _is_behind(leader: Leader, partition: AssignedPartition, state: Validating, now_ms: int) -> bool:
    """Return whether a later leader must be looked for, because records of a later epoch than this leader's were read.

    The known leader may have been replaced without knowing it, and so may the broker that sent the metadata.
    """
    since_ms = now_ms if state.behind_since_ms is None else state.behind_since_ms
    return partition.fetch_epoch > leader.epoch and now_ms - since_ms < LATER_LEADER_GRACE_MS
