"""The changes that `tidelog topic reassign` starts, and the replicas that they remove."""

from __future__ import annotations

import pytest

from tidelog.cli.reassignments.changes import StartedChange, lost_replicas, target_replicas
from tidelog.cli.reassignments.progress import Progress
from tidelog.client.admin.admin_results import PartitionDescription
from tidelog.model import TopicPartition
from tidelog.protocol.partition_messages import PartitionReassignment

#: Partition 0 moves from 1, 2, 3 to 1, 2, 4.
MOVING = PartitionReassignment("t", 0, (1, 2, 4, 3), (4,), (3,))
DESCRIBED = PartitionDescription(0, 1, 5, (1, 2, 4, 3), (1, 2, 3), lag={2: 0, 3: 0, 4: 70})
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IN_PROGRESS = {T0: Progress.of(T0, MOVING, DESCRIBED, {(1, T0): 5_000, (4, T0): 904})}


def test_removed_replicas_do_not_count_during_a_reassignment() -> None:
    assert target_replicas(DESCRIBED, MOVING) == (1, 2, 4)
    assert lost_replicas("t", {0: target_replicas(DESCRIBED, MOVING)}, {0: (1, 2, 4)}) == []


def test_all_replicas_count_without_a_move() -> None:
    assert target_replicas(DESCRIBED, None) == (1, 2, 4, 3)


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({0: (1, 2, 3), 1: (4, 2, 3)}, []),
        ({0: (1, 2, 3, 4)}, []),
        ({1: (2, 3)}, ["partition 1 of t would have 2 replicas instead of 3"]),
        ({0: (1,), 1: (2, 3), 2: (4,)}, [
            "partitions 0, 2 of t would have 1 replica instead of 3",
            "partition 1 of t would have 2 replicas instead of 3",
        ]),
    ],
)  # fmt: skip
def test_fewer_replicas_are_listed_by_partition(wanted: dict[int, tuple[int, ...]], shown: list[str]) -> None:
    assert lost_replicas("t", dict.fromkeys(range(3), (1, 2, 3)), wanted) == shown


@pytest.mark.parametrize(
    ("started", "state", "sentence"),
    [
        (StartedChange(T0, (1, 2, 3), (1, 2, 4)), "in progress", "t/0: replicas 1,2,3 → 1,2,4, in progress"),
        (StartedChange(T1, (1, 2, 3), (3, 2, 1)), "done", "t/1: replicas 1,2,3 → 3,2,1, done"),
        (StartedChange(T1, (1, 2, 3), (1, 2, 3)), "done", "t/1: has the replicas 1,2,3 already"),
        (StartedChange(T0, (1, 2, 4), None), "cancelled", "t/0: its reassignment is cancelled"),
    ],
)
def test_each_change_shows_its_state(started: StartedChange, state: str, sentence: str) -> None:
    assert (started.state(IN_PROGRESS), started.sentence(IN_PROGRESS)) == (state, sentence)
    assert started.as_json(IN_PROGRESS)["state"] == state


@pytest.mark.parametrize(("names_topic", "name", "number"), [(False, 0, 0), (True, "t/0", None)])
def test_reassignment_shows_the_remaining_records_and_bytes(
    names_topic: bool, name: object, number: int | None
) -> None:
    row = IN_PROGRESS[T0].as_row(names_topic=names_topic)
    assert row.cells == (name, "1,2,3", "4", "3", "4:70", "4KiB")
    assert (row.state, row.weight, row.number) == ("with records to copy", 70, number)
