"""Test what the error of a request to many leaders says about those that did not answer."""

from __future__ import annotations

from tidelog.client.leader_requests import summary
from tidelog.errors import LeaderNotAvailableError, OffsetNotAvailableError, TidelogError
from tidelog.model import TopicPartition


def test_partitions_that_are_missing_for_one_reason_stand_together() -> None:
    errors: dict[TopicPartition, TidelogError] = {
        TopicPartition("t", 2): LeaderNotAvailableError("no leader is known"),
        TopicPartition("t", 0): OffsetNotAvailableError("cut off"),
        TopicPartition("t", 1): LeaderNotAvailableError("no leader is known"),
    }
    assert summary(errors) == "t-0: cut off; t-1, t-2: no leader is known"


def test_a_line_stays_short_however_many_are_missing() -> None:
    alike: dict[TopicPartition, TidelogError] = {
        TopicPartition("t", n): LeaderNotAvailableError("gone") for n in range(1000)
    }
    assert summary(alike) == "t-0, t-1, t-2, and 997 more partitions: gone"
    each: dict[TopicPartition, TidelogError] = {
        TopicPartition("t", n): LeaderNotAvailableError(f"gone {n}") for n in range(1000)
    }
    assert summary(each) == "t-0: gone 0; t-1: gone 1; t-2: gone 2; and 997 more reasons"
