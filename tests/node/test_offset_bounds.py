"""Each offset that a broker passes to storage as a bound, in a log in which no two offsets are equal.

    log start 2 < recovery point 4 < high watermark 7 < log end 11, in segments from 0, 3, 6, 8 and 10

If two offsets were equal, a call with the wrong one would still give the right answer. That once hid that compaction
got the log end. Each test here names the only offset on which its answer may depend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.handlers.inspection.describe_replicas import describe_replicas
from node.handlers.inspection.examine_replica import ReplicaExaminations
from node.handlers.records.fetch import DelayedFetch, FetchTarget
from node.handlers.records.read_partition import read_partition
from storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, read_offsets, write_offsets
from storage.files import RealFiles
from storage.log_manager import LogManager
from tests.node.client_requests import TP, fetch_request, values_of
from tests.node.memory_cluster import MemoryCluster
from tests.node.test_list_offsets_v0 import before
from tests.node.test_log_maintenance import BrokerOnDisk, broker_on_disk
from tests.storage.cleaning import keyed
from tests.storage.logs import records_of
from tidelog.clock import SystemClock
from tidelog.errors import IneligibleReplicaError, OffsetOutOfRangeError
from tidelog.model import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from tidelog.protocol.admin_messages import DeleteRecordsPartition, DeleteRecordsRequest, DescribeLogDirsRequest
from tidelog.protocol.control_messages import LogEndsRequest
from tidelog.protocol.messages import (
    DescribePartition,
    DescribeReplicasRequest,
    EpochPartition,
    OffsetForLeaderEpochRequest,
)
from tidelog.protocol.operator_messages import ExamineReplicaRequest

LOG_START, RECOVERY_POINT, HIGH_WATERMARK, LOG_END = 2, 4, 7, 11
SEGMENTS = (0, 3, 6, 8, 10)
#: The keys of the records by offset. `a` has a newer record below the high watermark, `b` and `c` only above it.
KEYS = (b"x", b"y", b"c", b"a", b"b", b"a", b"e", b"f", b"b", b"c", b"g")
LATER = 1 << 60


@asynccontextmanager
async def unequal(path: Path, **configs: str) -> AsyncIterator[BrokerOnDisk]:
    """A leader whose offsets all differ. Too few replicas are in sync, so the high watermark cannot rise."""
    async with broker_on_disk(path, min_insync_replicas="2", **configs) as here:
        begin_ms = SystemClock().now_ms() - 1_000
        for offset, key in enumerate(KEYS):
            if offset in SEGMENTS[1:]:
                here.log.roll(begin_ms)
            here.log.append_as_leader(keyed((key, b"%d" % offset), timestamp=begin_ms + offset), 0, begin_ms)
            if offset + 1 == RECOVERY_POINT:
                here.log.flush()
        here.log.raise_log_start(LOG_START)
        here.node.replica().partition.high_watermark = HIGH_WATERMARK
        assert here.log.segment_base_offsets == SEGMENTS
        assert (here.log.log_start_offset, here.log.recovery_point, here.log.log_end_offset) == (
            LOG_START,
            RECOVERY_POINT,
            LOG_END,
        )
        yield here


async def test_compaction_is_bounded_by_the_high_watermark(tmp_path: Path) -> None:
    async with unequal(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio="0") as here:
        maintenance = here.maintenance_loop()
        assert await maintenance.clean()
        kept = [record.offset for record, _ in records_of(here.log)]
        assert kept == [2, 4, 5, 6, 7, 8, 9, 10], "compaction removes only records with a newer committed record"
        here.log.truncate_to(HIGH_WATERMARK)
        assert {record.key for record, _ in records_of(here.log)} == {b"a", b"b", b"c", b"e"}, (
            "each key has its last value"
        )
        await maintenance.stop()


async def test_retention_is_bounded_by_the_high_watermark(tmp_path: Path) -> None:
    async with unequal(tmp_path, retention_bytes="0") as here:
        maintenance = here.maintenance_loop()
        await maintenance.delete_old_segments()
        assert here.log.segment_base_offsets == (6, 8, 10)
        await maintenance.stop()


@pytest.mark.parametrize("before_offset", [-1, HIGH_WATERMARK, HIGH_WATERMARK + 1, LOG_END])
async def test_deletion_of_records_is_bounded_by_the_high_watermark(tmp_path: Path, before_offset: int) -> None:
    async with unequal(tmp_path) as here:
        part = DeleteRecordsPartition(TP.topic, TP.partition, before_offset)
        (answer,) = (await here.node.ask(DeleteRecordsRequest((part,), 1_000))).partitions
        if before_offset > HIGH_WATERMARK:
            assert answer.error_code == OffsetOutOfRangeError.code
            assert here.log.log_start_offset == LOG_START
        else:
            assert (answer.error_code, answer.low_watermark) == (0, HIGH_WATERMARK)
            assert here.log.log_start_offset == HIGH_WATERMARK


@pytest.mark.parametrize(("for_follower", "end"), [(False, HIGH_WATERMARK), (True, LOG_END)])
async def test_fetch_ends_at_the_bound_of_its_reader(tmp_path: Path, for_follower: bool, end: int) -> None:
    async with unequal(tmp_path) as here:
        found: list[bytes] = []
        at = LOG_START
        while at < LOG_END:  # one read ends at the end of a segment
            (asked,) = fetch_request(at).partitions
            answer, _ = read_partition(
                here.node.replicas, asked, here.node.replica(), 0, 1 << 20, for_follower=for_follower, first=True
            )
            bounds = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
            assert bounds == (HIGH_WATERMARK, HIGH_WATERMARK, LOG_START)
            if answer.records is None:
                break
            found += values_of(answer.records, at)
            at = LOG_START + len(found)
        assert found == [b"%d" % offset for offset in range(LOG_START, end)]


async def test_fetch_out_of_range_names_the_readable_offsets(tmp_path: Path) -> None:
    async with unequal(tmp_path) as here:
        for at in (LOG_START - 1, LOG_END + 1):
            (answer,) = (await here.node.ask(fetch_request(at))).partitions
            bounds = (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset)
            assert (answer.error_code, *bounds) == (
                OffsetOutOfRangeError.code,
                HIGH_WATERMARK,
                HIGH_WATERMARK,
                LOG_START,
            )


async def test_waiting_fetch_counts_committed_bytes_alone(tmp_path: Path) -> None:
    async with unequal(tmp_path) as here:
        record_bytes = here.log.bytes_between(6, 7)
        assert record_bytes
        for records, satisfied in ((1, True), (2, False)):
            request = fetch_request(6, min_bytes=records * record_bytes)
            target = FetchTarget(request.partitions[0], here.node.replica(), 0)
            most_bytes = request.partitions[0].partition_max_bytes
            delayed = DelayedFetch(1_000, here.node.replicas, request, [target], most_bytes, sends_files=False)
            assert delayed.is_satisfied() == satisfied


@pytest.mark.parametrize(
    ("replica_id", "end", "last"),
    [(CONSUMER_REPLICA_ID, HIGH_WATERMARK, HIGH_WATERMARK - 1), (DEBUGGING_REPLICA_ID, LOG_END, LOG_END - 1)],
)
async def test_look_up_ends_at_the_bound_of_its_reader(tmp_path: Path, replica_id: int, end: int, last: int) -> None:
    async with unequal(tmp_path) as here:
        times = {record.offset: record.timestamp for record, _ in records_of(here.log)}

        async def offset_of(timestamp: int) -> int:
            return (await here.node.look_up(timestamp, replica_id=replica_id))[1]

        assert await offset_of(LATEST_TIMESTAMP) == end
        assert await offset_of(EARLIEST_TIMESTAMP) == LOG_START
        assert await offset_of(MAX_TIMESTAMP) == last
        assert await offset_of(0) == LOG_START
        assert await offset_of(times[last]) == last
        assert await offset_of(times[last] + 1) == -1
        bases = tuple(base for base in reversed(SEGMENTS) if LOG_START < base < end)
        assert await before(here.node, LATER, replica_id=replica_id) == (0, (end, *bases, LOG_START))


async def test_checkpoints_note_each_offset_in_its_own_file(tmp_path: Path) -> None:
    async with unequal(tmp_path) as here:
        await here.node.replicas.checkpoint_high_watermarks()
        here.manager.checkpoint_recovery_points()
        here.manager.checkpoint_log_starts()
        noted = [read_offsets(RealFiles(), tmp_path / name) for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS)]
        assert noted == [{TP: HIGH_WATERMARK}, {TP: RECOVERY_POINT}, {TP: LOG_START}]


async def test_descriptions_show_each_offset_under_its_name(tmp_path: Path) -> None:
    async with unequal(tmp_path, retention_bytes="0") as here:
        request = DescribeReplicasRequest((DescribePartition(TP.topic, TP.partition),))
        (described,) = describe_replicas(here.node.replicas, request).partitions
        assert (described.log_start_offset, described.high_watermark, described.log_end_offset) == (
            LOG_START,
            HIGH_WATERMARK,
            LOG_END,
        )
        report = (
            await ReplicaExaminations(here.node.replicas).examine(ExamineReplicaRequest(TP.topic, TP.partition))
        ).replica
        assert report is not None and report.retention is not None
        assert (report.log_start_offset, report.high_watermark, report.log_end_offset) == (
            LOG_START,
            HIGH_WATERMARK,
            LOG_END,
        )
        assert report.retention.deletable == 2, "two segments end at or below the high watermark"


async def test_open_epoch_ends_at_the_log_end(tmp_path: Path) -> None:
    async with unequal(tmp_path) as here:
        asked = EpochPartition(TP.topic, TP.partition, 0, 0)
        (answer,) = (await here.node.ask(OffsetForLeaderEpochRequest((asked,), CONSUMER_REPLICA_ID))).partitions
        assert (answer.leader_epoch, answer.end_offset) == (0, LOG_END)


@asynccontextmanager
async def restarted(path: Path) -> AsyncIterator[MemoryCluster]:
    """Restart the broker. Another replica is down, so the high watermark cannot rise."""
    manager = LogManager.open([path], RealFiles(), 1, "c", "boot")
    manager.open_logs()
    async with MemoryCluster(1, directory=lambda: manager) as cluster:
        cluster.replicas = (1, 2)
        await cluster.elect(1, isr=(1, 2), send_to=())  # the epoch in which the broker led before its restart
        yield cluster


async def leave_a_log(path: Path, *, synced: bool) -> None:
    """Write the log with unequal offsets, as a killed leader leaves it."""
    async with unequal(path) as here:
        if synced:
            here.log.flush()
        await here.node.replicas.checkpoint_high_watermarks()
        here.manager.checkpoint_recovery_points()
        here.manager.checkpoint_log_starts()
        here.manager.close(clean=False)


@pytest.mark.parametrize("synced", [False, True], ids=["flushed below it", "flushed beyond it"])
async def test_restarted_broker_begins_at_the_noted_high_watermark(tmp_path: Path, synced: bool) -> None:
    await leave_a_log(tmp_path, synced=synced)
    async with restarted(tmp_path) as cluster:
        await cluster.elect(1)
        log = cluster.nodes[1].log()
        assert (log.log_start_offset, log.log_end_offset) == (LOG_START, LOG_END)
        assert cluster.nodes[1].replica().partition.high_watermark == HIGH_WATERMARK


@pytest.mark.parametrize(("noted", "code"), [(LOG_END, 0), (LOG_END + 1, IneligibleReplicaError.code)])
async def test_log_that_ends_below_its_noted_high_watermark_is_ineligible(
    tmp_path: Path, noted: int, code: int
) -> None:
    await leave_a_log(tmp_path, synced=False)
    write_offsets(RealFiles(), tmp_path / HIGH_WATERMARKS, {TP: noted})
    async with restarted(tmp_path) as cluster:
        asked = LogEndsRequest(1, cluster.controller_epoch, (DescribePartition(*TP),))
        (answer,) = (await cluster.nodes[1].ask(asked, sender_epoch=1)).partitions
        assert (answer.error_code, answer.log_end_offset) == (code, LOG_END)


async def test_log_beyond_its_high_watermark_has_no_lag(tmp_path: Path) -> None:
    async with unequal(tmp_path) as here:
        (directory,) = (await here.node.ask(DescribeLogDirsRequest())).log_dirs
        assert [replica.offset_lag for replica in directory.replicas] == [0]
