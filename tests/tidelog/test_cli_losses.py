"""Changes of a topic's settings, and the data or guarantees that they lose."""

from __future__ import annotations

import pytest

from tidelog.cli.topics.losses import losses
from tidelog.client.admin.topic_time_spans import PartitionTimes
from tidelog.errors import NotLeaderOrFollowerError
from tidelog.records import RecordTime

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DEFAULTS = {
    "cleanup.policy": "delete",
    "min.insync.replicas": "2",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
EMPTY = PartitionTimes(0, 0, 0, 0)
#: A hundred records of the last hour, in 10 KiB.
FILLED = PartitionTimes(1, 0, 100, 10_240, samples=(RecordTime(0, NOW_MS - HOUR_MS), RecordTime(99, NOW_MS)))
SILENT = PartitionTimes(2, error=NotLeaderOrFollowerError("broker 3 is away"))


def lost_by(*held: PartitionTimes, before: dict[str, str] | None = None, **after: str) -> list[str]:
    """The losses of a change from the defaults; `_` stands for `.` in a setting's name."""
    old = DEFAULTS | (before or {})
    return losses(old, old | {name.replace("_", "."): value for name, value in after.items()}, held, NOW_MS)


def test_fewer_copies_before_an_acknowledgement_are_a_loss() -> None:
    assert lost_by(FILLED, min_insync_replicas="1") == [
        "min.insync.replicas from 2 to 1 acknowledges records that have 1 copy, which a failure may lose"
    ]
    assert lost_by(FILLED, min_insync_replicas="3") == []


def test_a_leader_that_lacks_records_is_a_loss() -> None:
    (shown,) = lost_by(EMPTY, unclean_leader_election_enable="true")
    assert shown == "unclean.leader.election.enable=true allows a leader that lacks acknowledged records"
    assert (
        lost_by(EMPTY, before={"unclean.leader.election.enable": "true"}, unclean_leader_election_enable="false") == []
    )


@pytest.mark.parametrize(
    ("retention_ms", "lost"),
    [
        (str(HOUR_MS - 1), True),
        (str(HOUR_MS), False),
        (str(24 * HOUR_MS), False),
        ("0", True),
        ("-1", False),
        ("soon", False),
    ],
)
def test_shorter_retention_is_a_loss_only_if_older_records_are_there(retention_ms: str, lost: bool) -> None:
    assert bool(lost_by(EMPTY, FILLED, retention_ms=retention_ms)) is lost
    assert lost_by(EMPTY, retention_ms=retention_ms) == []


def test_loss_by_time_names_the_oldest_timestamp() -> None:
    assert lost_by(EMPTY, FILLED, retention_ms="1000") == [
        "retention.ms=1000 deletes records older than 1 s, in 1 partition (the oldest is of 2023-11-14T21:13:20.000Z)"
    ]


def test_longer_retention_is_no_loss_although_records_are_older() -> None:
    assert lost_by(FILLED, before={"retention.ms": "1000"}, retention_ms="2000") == []


def test_limit_after_unlimited_retention_is_a_loss() -> None:
    assert len(lost_by(FILLED, before={"retention.ms": "-1"}, retention_ms="1000")) == 1


@pytest.mark.parametrize(("retention_bytes", "lost"), [("10239", True), ("10240", False), ("-1", False), ("0", True)])
def test_a_smaller_log_is_a_loss_only_if_it_is_larger_now(retention_bytes: str, lost: bool) -> None:
    shown = lost_by(EMPTY, FILLED, retention_bytes=retention_bytes)
    assert bool(shown) is lost
    assert all("in 1 partition" in each for each in shown)


def test_compaction_of_existing_records_is_a_loss() -> None:
    (shown,) = lost_by(EMPTY, FILLED, cleanup_policy="compact,delete")
    assert shown == "cleanup.policy=compact,delete keeps only the last record of each key, in 1 partition"
    assert lost_by(EMPTY, cleanup_policy="compact") == []
    assert lost_by(FILLED, before={"cleanup.policy": "compact"}, cleanup_policy="delete,compact") == []


def test_retention_of_a_topic_that_is_only_compacted_deletes_nothing() -> None:
    assert lost_by(FILLED, before={"cleanup.policy": "compact"}, retention_ms="1000", retention_bytes="1") == []


def test_deletion_by_age_that_a_policy_enables_is_a_loss() -> None:
    before = {"cleanup.policy": "compact", "retention.ms": "1000"}
    (shown,) = lost_by(FILLED, before=before, cleanup_policy="compact,delete")
    assert shown.startswith("retention.ms=1000 deletes")


def test_partition_without_an_answer_may_lose_records() -> None:
    assert "in 2 partitions" in lost_by(FILLED, SILENT, retention_ms="1000")[0]
    assert lost_by(SILENT, retention_ms="1000") == ["retention.ms=1000 deletes records older than 1 s, in 1 partition"]
    assert "in 1 partition" in lost_by(SILENT, retention_bytes="1")[0]


def test_several_losses_are_all_listed() -> None:
    assert len(lost_by(FILLED, retention_ms="1000", retention_bytes="1", min_insync_replicas="1")) == 3
