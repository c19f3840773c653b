"""Test the validation of a position by a new leader (KIP-320), one answer of the leader after another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.tidelog.clients import put
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.fetched_batches import a_batch
from tests.tidelog.position_setup import P0, PositionSetup, position_setup
from tests.virtual_time import on_virtual_time
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_plan import RequestedPartition
from tidelog.client.consumer.fetching.position_state import Fetching, Resetting, Validating
from tidelog.client.consumer.fetching.position_validation import PositionValidation
from tidelog.client.metadata import Leader
from tidelog.errors import LogTruncationError, UnsupportedVersionError
from tidelog.model import EARLIEST_TIMESTAMP
from tidelog.protocol.messages import OffsetForLeaderEpochRequest

Question = Callable[[list[RequestedPartition]], Coroutine[Any, Any, None]]


def a_cluster(batches: int) -> tuple[FakeCluster, FakePartition]:
    """Return a partition with a leader of epoch 0, which has batches of one record."""
    cluster = FakeCluster()
    (log,) = cluster.create("t")
    for _ in range(batches):
        put(log, b"v")
    return cluster, log


class Validation:
    """One partition that is read, and the validation of its position; `later` has the further requests."""

    def __init__(self, setup: PositionSetup, partition: AssignedPartition) -> None:
        self.setup = setup
        self.partition = partition
        self.later: list[tuple[Question, list[RequestedPartition]]] = []
        self._validation = PositionValidation(
            setup.client, setup.positions, setup.failures, lambda question, asked: self.later.append((question, asked))
        )

    async def validate(self, leader: Leader | None = None) -> None:
        requested = await self.setup.request(self.partition, leader)
        assert isinstance(self.partition.state, Validating)
        await self._validation.validate(requested)

    async def ask_later(self) -> None:
        ((question, asked),) = self.later
        await question(asked)


async def read(setup: PositionSetup, log: FakePartition, *, ahead: int = 0) -> Validation:
    """Return a validation after a reader has fetched the whole log and taken all but the last `ahead` batches."""
    partition = await setup.fetching(0)
    for batch in log.batches:
        partition.on_fetched(memoryview(batch), log.epoch, high_watermark=9, log_start_offset=0, check_crcs=True)
    partition.take_records(len(log.batches) - ahead)
    return Validation(setup, partition)


@on_virtual_time
async def test_leader_that_has_the_records_confirms_the_position() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        reader = await read(setup, log)
        cluster.move(log)
        await reader.validate()
        assert reader.partition.state == Fetching() and reader.partition.validated_epoch == 1
        assert reader.partition.position == 3


@on_virtual_time
async def test_reader_goes_back_to_the_divergence_and_validates_again() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        reader = await read(setup, log)
        log.elect_uncleanly(2, keeping=1)
        await reader.validate()
        assert reader.partition.position == 1 and reader.partition.state == Validating()
        await reader.validate()
        assert reader.partition.position == 1 and reader.partition.state == Fetching()


@on_virtual_time
async def test_data_fetched_ahead_is_dropped_before_the_reader_goes_back() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        reader = await read(setup, log, ahead=1)
        log.elect_uncleanly(2, keeping=2)
        await reader.validate()
        assert reader.partition.position == reader.partition.fetch_offset == 2
        assert reader.partition.state == Validating() and not reader.partition.has_data
        await reader.validate()
        assert reader.partition.position == 2 and reader.partition.state == Fetching()


@on_virtual_time
async def test_divergence_before_any_read_record_needs_no_second_validation() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        partition = await setup.fetching(3, 0)
        reader = Validation(setup, partition)
        log.elect_uncleanly(2, keeping=1)
        await reader.validate()
        assert partition.position == 1 and partition.state == Fetching()


@on_virtual_time
async def test_without_a_policy_the_truncation_is_an_error() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster, auto_offset_reset="none") as setup:
        reader = await read(setup, log)
        log.elect_uncleanly(2, keeping=1)
        await reader.validate()
        error = reader.partition.standing_error.error
        assert isinstance(error, LogTruncationError)
        assert (error.topic_partition, error.offset, error.divergent_offset) == (P0, 3, 1)
        assert reader.partition.position == 3 and reader.partition.state == Validating()


@on_virtual_time
async def test_policy_is_applied_if_the_leader_knows_no_such_epoch() -> None:
    cluster, _ = a_cluster(3)
    async with position_setup(cluster) as setup:
        partition = await setup.fetching(0)
        records = memoryview(b"".join(a_batch(offset, epoch=7) for offset in range(3)))
        partition.on_fetched(records, 7, high_watermark=9, log_start_offset=0, check_crcs=True)
        partition.take_records(9)
        reader = Validation(setup, partition)
        await reader.validate()
        assert partition.state == Resetting(EARLIEST_TIMESTAMP)


# --- a leader that does not know the reader's epoch -------------------------------------------------


async def read_two_epochs(setup: PositionSetup, log: FakePartition) -> Validation:
    """Let a reader read two records of epoch 0 and two of epoch 1."""
    log.elect(2)
    for _ in range(2):
        put(log, b"later")
    return await read(setup, log)


@on_virtual_time
async def test_compacted_epoch_confirms_the_position() -> None:
    cluster, log = a_cluster(2)
    async with position_setup(cluster) as setup:
        reader = await read_two_epochs(setup, log)
        log.elect_another(3, [*log.batches[:2], bytes(a_batch(6, epoch=0))])  # the records of epoch 1 are gone
        await reader.validate()
        assert reader.partition.state == Validating() and len(reader.later) == 1
        await reader.ask_later()
        assert reader.partition.state == Fetching() and reader.partition.position == 4


@on_virtual_time
async def test_record_of_another_epoch_before_the_position_is_a_divergence() -> None:
    cluster, log = a_cluster(2)
    async with position_setup(cluster) as setup:
        reader = await read_two_epochs(setup, log)
        log.elect_another(3, [*log.batches[:2], *[bytes(a_batch(offset, epoch=0)) for offset in range(2, 6)]])
        await reader.validate()
        await reader.ask_later()
        assert reader.partition.position == 2 and reader.partition.state == Validating()


@on_virtual_time
async def test_record_that_is_not_yet_visible_is_asked_for_again_after_a_pause() -> None:
    cluster, log = a_cluster(2)
    async with position_setup(cluster) as setup:
        reader = await read_two_epochs(setup, log)
        log.elect_another(3, [*log.batches[:2], *[bytes(a_batch(offset, epoch=0)) for offset in range(2, 6)]])
        log.high_watermark = 3
        await reader.validate()
        await reader.ask_later()
        assert reader.partition.state == Validating() and reader.partition.retry.attempts == 1


@on_virtual_time
async def test_further_request_after_a_seek_is_not_sent() -> None:
    cluster, log = a_cluster(2)
    async with position_setup(cluster) as setup:
        reader = await read_two_epochs(setup, log)
        log.elect_another(3, [*log.batches[:2], bytes(a_batch(6, epoch=0))])
        await reader.validate()
        reader.partition.seek(0)
        cluster.requests.clear()
        await reader.ask_later()
        assert reader.partition.position == 0 and not cluster.requests


# --- answers that do not count ----------------------------------------------------------------------


@on_virtual_time
async def test_answer_of_a_leader_that_was_replaced_does_not_count() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        reader = await read(setup, log)
        await setup.leader()
        await reader.validate(Leader(3, 4, "id"))
        assert reader.partition.state == Validating()


@on_virtual_time
async def test_partition_that_moved_is_not_asked_for() -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        reader = await read(setup, log)
        cluster.move(log)
        requested = await setup.request(reader.partition)
        reader.partition.reset(EARLIEST_TIMESTAMP)
        await PositionValidation(setup.client, setup.positions, setup.failures, lambda *_: None).validate(requested)
        assert not cluster.sent(OffsetForLeaderEpochRequest)
        assert reader.partition.state == Resetting(EARLIEST_TIMESTAMP)


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "no answer in time"])
@on_virtual_time
async def test_later_leader_is_looked_for_anew_if_this_one_does_not_answer(refused: bool) -> None:
    cluster, log = a_cluster(3)
    async with position_setup(cluster) as setup:
        reader = await read(setup, log)
        cluster.move(log)
        await setup.request(reader.partition)
        reader.partition.on_leader_behind(30)
        if refused:
            cluster.refusals[OffsetForLeaderEpochRequest].append(UnsupportedVersionError.code)
        else:
            cluster.hung.add(log.leader)
        await reader.validate()
        assert reader.partition.state == Validating()
        assert (reader.partition.standing_error.error is not None) == refused
