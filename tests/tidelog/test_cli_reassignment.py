"""The changes that `tidelog topic reassign` starts, and the replicas that they remove."""

from __future__ import annotations

import pytest

from tidelog.cli.topics.reassignment import Progress, StartedChange, lost_replicas, target_replicas
from tidelog.client.admin.admin_results import PartitionDescription
from tidelog.protocol.partition_messages import PartitionReassignment

#: Partition 0 moves from 1, 2, 3 to 1, 2, 4.
MOVING = PartitionReassignment("t", 0, (1, 2, 4, 3), (4,), (3,))
DESCRIBED = PartitionDescription(0, 1, 5, (1, 2, 4, 3), (1, 2, 3), lag={2: 0, 3: 0, 4: 70})
IN_PROGRESS = {0: Progress.of(MOVING, DESCRIBED)}


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
        (StartedChange(0, (1, 2, 3), (1, 2, 4)), "in progress", "replicas 1,2,3 → 1,2,4, in progress"),
        (StartedChange(1, (1, 2, 3), (3, 2, 1)), "done", "replicas 1,2,3 → 3,2,1, done"),
        (StartedChange(1, (1, 2, 3), (1, 2, 3)), "done", "has the replicas 1,2,3 already"),
        (StartedChange(0, (1, 2, 4), None), "cancelled", "its reassignment is cancelled"),
    ],
)
def test_each_change_shows_its_state(started: StartedChange, state: str, sentence: str) -> None:
    assert (started.state(IN_PROGRESS), started.sentence(IN_PROGRESS)) == (state, sentence)
    assert started.as_json(IN_PROGRESS)["state"] == state


def test_reassignment_shows_the_remaining_records() -> None:
    assert IN_PROGRESS[0].as_row().cells == (0, "1,2,3", "4", "3", "4:70")
