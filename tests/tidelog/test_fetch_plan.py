"""Test which step a partition needs next, in each state, and how a plan groups the requests."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.test_assigned_partition import fetch, in_state
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_buffer import MAX_CHUNKS
from tidelog.client.consumer.fetching.fetch_plan import (
    LATER_LEADER_GRACE_MS,
    FetchPlan,
    RequestedPartition,
    Step,
    needs_step,
    next_step,
)
from tidelog.client.consumer.fetching.retry import NO_RETRY
from tidelog.client.metadata import Leader
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

STATES = ["AwaitingCommit", "Resetting", "Failed", "Validating", "Fetching"]
LEADER = Leader(1, 5, "id")
#: One row for each state, one column for each thing that the fetcher knows of the leader.
TABLE = """
                 same-topic          other-topic         no-leader     in-a-pause
AwaitingCommit   FIND_COMMIT         FIND_COMMIT         FIND_COMMIT   FIND_COMMIT
Resetting        FIND_END            RESET               FIND_LEADER   WAIT
Failed           REPORT_NO_POSITION  RESET               FIND_LEADER   WAIT
Validating       VALIDATE            FETCH               FIND_LEADER   WAIT
Fetching         FETCH               FETCH               FIND_LEADER   WAIT
"""


def cells() -> list[tuple[str, str, str]]:
    head, *rows = [line.split() for line in TABLE.strip().splitlines()]
    return [(state, leader, step) for state, *steps in rows for leader, step in zip(head, steps, strict=True)]


@pytest.mark.parametrize(("state", "leader", "step"), cells())
def test_step_follows_from_the_state_and_the_leader(state: str, leader: str, step: str) -> None:
    partition = in_state(state)
    partition.topic_id = "another" if leader == "other-topic" else "id"
    if leader == "in-a-pause":
        partition.retry = NO_RETRY.after_failure(LEADER, 100)
    known = None if leader == "no-leader" else LEADER
    assert next_step(partition, known, 99) is Step[step]
    assert type(partition.state).__name__ == state


def test_committed_offset_is_asked_for_again_after_its_own_pause() -> None:
    partition = in_state("AwaitingCommit")
    partition.retry = NO_RETRY.after_failure(None, 100)
    assert next_step(partition, None, 99) is Step.WAIT
    assert next_step(partition, None, 100) is Step.FIND_COMMIT


def test_new_leader_is_asked_during_the_pause_of_the_old_one() -> None:
    partition = in_state("Fetching")
    partition.topic_id = "id"
    partition.retry = NO_RETRY.after_failure(LEADER, 100)
    assert next_step(partition, Leader(2, 6, "id"), 99) is Step.FETCH


@pytest.mark.parametrize(
    ("to", "step"),
    [(EARLIEST_TIMESTAMP, Step.FIND_END), (LATEST_TIMESTAMP, Step.FIND_END), (0, Step.FIND_TIME), (20, Step.FIND_TIME)],
)
def test_reset_looks_up_an_end_or_a_time(to: int, step: Step) -> None:
    partition = in_state("Resetting")
    partition.reset(to)
    partition.on_leader(LEADER)
    assert next_step(partition, LEADER, 0) is step


def test_later_leader_is_looked_for_until_the_grace_is_over() -> None:
    partition, behind = in_state("Validating"), Leader(1, 4, "id")
    partition.on_leader(behind)
    assert next_step(partition, behind, 1000) is Step.FIND_LATER_LEADER
    partition.on_leader_behind(1000)
    assert next_step(partition, behind, 999 + LATER_LEADER_GRACE_MS) is Step.FIND_LATER_LEADER
    assert next_step(partition, behind, 1000 + LATER_LEADER_GRACE_MS) is Step.VALIDATE
    assert next_step(partition, LEADER, 1000) is Step.VALIDATE


# --- whether a step is needed -----------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
async def test_busy_partition_needs_no_step(state: str) -> None:
    partition = in_state(state)
    assert needs_step(partition, has_room=True)
    partition.work = asyncio.create_task(asyncio.sleep(0))
    assert not needs_step(partition, has_room=True)
    await partition.work
    assert needs_step(partition, has_room=True)


@pytest.mark.parametrize(("state", "needs"), [(state, state in STATES[:3]) for state in STATES])
def test_position_is_found_without_room_and_while_paused(state: str, needs: bool) -> None:
    partition = in_state(state)
    assert needs_step(partition, has_room=False) == needs
    partition.paused = True
    assert needs_step(partition, has_room=True) == needs


def test_partition_with_a_full_buffer_needs_no_step() -> None:
    partition = in_state("Fetching")
    for _ in range(MAX_CHUNKS):
        assert needs_step(partition, has_room=True)
        fetch(partition)
    assert not needs_step(partition, has_room=True)


# --- the plan ---------------------------------------------------------------------------------------


def a_partition(number: int) -> AssignedPartition:
    return AssignedPartition(TopicPartition("t", number), EARLIEST_TIMESTAMP)


def test_partitions_of_one_leader_and_kind_share_a_request() -> None:
    plan = FetchPlan()
    one, two, three, alone = map(a_partition, range(4))
    alone.is_alone = True
    elsewhere = Leader(2, 5, "id")
    for partition, leader in [(one, LEADER), (two, LEADER), (three, elsewhere), (alone, LEADER)]:
        for step in (Step.FETCH, Step.FIND_END):
            plan.add(step, partition, leader)
    plan.add(Step.VALIDATE, one, LEADER)
    groups = [[one, two], [three], [alone]]
    assert [[each.partition for each in fetch] for fetch in plan.fetches.values()] == groups
    assert [[each.partition for each in asked] for asked in plan.look_ups.values()] == [*groups, [one]]
    assert [step for step, _, _ in plan.look_ups] == [*[Step.FIND_END] * 3, Step.VALIDATE]


def test_committed_offsets_are_asked_for_together() -> None:
    plan = FetchPlan()
    one, two, alone = map(a_partition, range(3))
    alone.is_alone = True
    for partition in (one, two, alone):
        plan.add_commit(partition)
    assert list(plan.commits.values()) == [[one, two], [alone]]


def test_next_turn_is_due_at_the_earliest_retry() -> None:
    plan = FetchPlan()
    assert plan.later_ms is None
    for at_ms in (30, 10, 20):
        plan.retry_at(at_ms)
    assert plan.later_ms == 10


def test_request_is_outdated_by_a_new_position() -> None:
    partition = a_partition(0)
    requested = RequestedPartition(partition, partition.generation, LEADER)
    assert requested.is_current
    partition.seek(3)
    assert not requested.is_current
