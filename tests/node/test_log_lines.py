"""Log lines of a broker: events that an operator needs, and no line about normal operation."""

from __future__ import annotations

import logging

import pytest

from node.replication.fetching.partition_fetch_state import PartitionFetchState
from tests.node.client_requests import TP
from tests.node.group_cluster import GroupCluster
from tests.node.memory_cluster import MemoryCluster
from tests.node.scripted_leader import replica_of
from tests.virtual_time import on_virtual_time
from tidelog.errors import (
    BrokerError,
    CorruptMessageError,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from tidelog.protocol.messages import FetchPartitionResponse


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """The lines that brokers log at this level and above, without the name of the module."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= level and record.name.startswith(("node", "cluster", "storage"))
    ]


@on_virtual_time
async def test_use_of_a_new_topic_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert await cluster.produce(b"a") == (0, 0)
        assert (await cluster.consume(0))[1] == [b"a"]
        assert lines(caplog) == []


@on_virtual_time
async def test_leader_change_logs_one_line_for_each_role(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        caplog.set_level(logging.INFO)
        await cluster.elect(2)
        assert lines(caplog) == [
            "begins to follow 1 partition: t-0 (broker 2, epoch 1)",
            "begins to lead 1 partition: t-0 (epoch 1)",
            "begins to follow 1 partition: t-0 (broker 2, epoch 1)",
        ]
        caplog.clear()
        await cluster.send_state()
        assert lines(caplog) == [], "the brokers get the same state again"


@on_virtual_time
async def test_coordinator_without_groups_logs_nothing_at_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with GroupCluster() as cluster:
        await cluster.coordinate(1)
        assert await cluster.commit(5) == 0
        assert [line for line in lines(caplog) if "coordinates" in line] == []
        await cluster.coordinate(2)
        assert await cluster.commit(6) == 0
        [line] = [line for line in lines(caplog) if "coordinates" in line]
        assert "coordinates 1 group, loaded in" in line


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (UnknownLeaderEpochError, logging.DEBUG),
        (FencedLeaderEpochError, logging.DEBUG),
        (NotLeaderOrFollowerError, logging.DEBUG),
        (UnknownTopicOrPartitionError, logging.DEBUG),
        (StorageError, logging.WARNING),
        (CorruptMessageError, logging.WARNING),
        (OffsetOutOfRangeError, logging.WARNING),
    ],
)
@on_virtual_time
async def test_refused_fetch_is_logged_unless_both_brokers_agree_a_moment_later(
    error: type[BrokerError], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    followed = PartitionFetchState(replica_of())
    followed.fetch_answered(FetchPartitionResponse(*TP, error.code), 0)
    [record] = [
        record
        for record in caplog.records
        if record.name == "node.replication.fetching.partition_fetch_state" and "broker" in record.getMessage()
    ]
    assert record.levelno == level
    assert record.getMessage().startswith("t-0: broker ")
