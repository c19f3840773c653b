"""`tidelog consume --group` commits the offsets of written records, after they were written."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from tidelog.cli.records.consume_loop import write_records
from tidelog.cli.records.group_share import GroupReading
from tidelog.cli.records.output import RecordWriter
from tidelog.cli.terminal.progress import Progress
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetching.fetch_buffer import FetchedBatches
from tidelog.errors import CommitFailedError, CorruptMessageError, RebalanceInProgressError, TidelogError
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.records.encode import encode_batch

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
Polled = dict[TopicPartition, FetchedBatches]


def records(tp: TopicPartition, *offsets: int) -> Polled:
    """A batch of leader epoch 3 with these offsets, which follow each other."""
    batch = encode_batch([(0, None, b"%d" % each, ()) for each in offsets], base_offset=offsets[0], leader_epoch=3)
    end = offsets[-1] + 1
    return {tp: FetchedBatches(memoryview(batch), offsets[0], end, end, 0, 3)}


class Scripted:
    """A consumer with scripted polls: each returns records, calls the listener, or raises an error.

    did       commits and pauses, in order
    refusals  errors of the next commits; None: the commit succeeds
    """

    def __init__(self, *script: Polled | str | BaseException) -> None:
        self.did: list[Any] = []
        self.refusals: list[TidelogError | None] = []
        self._script: Iterator[Polled | str | BaseException] = iter(script)
        self._positions = {TP: 0, OTHER: 0}
        self._listener: Any = None

    def subscribe(self, topics: Sequence[str], *, listener: object) -> None:
        self._listener = listener

    def poll_batches(self, timeout_ms: int) -> Polled:
        step = next(self._script)
        while isinstance(step, str):
            getattr(self._listener, f"on_partitions_{step}")([TP, OTHER])
            step = next(self._script)
        if isinstance(step, BaseException):
            raise step
        for tp, each in step.items():
            self._positions[tp] = each.next_offset
        return step

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    def pause(self, *tps: TopicPartition) -> None:
        self.did += [("pause", tp) for tp in tps]

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        refusal = self.refusals.pop(0) if self.refusals else None
        self.did.append({tp: each.offset for tp, each in offsets.items()})
        if refusal is not None:
            raise refusal


class Refusing(io.BytesIO):
    """A reader that has gone."""

    def flush(self) -> None:
        raise BrokenPipeError


def consume(consumer: Scripted, out: io.BytesIO, ends: dict[TopicPartition, int] | None = None) -> None:
    """As the command does."""
    with (
        Progress("read", shown=False) as progress,
        GroupReading(cast(Consumer, consumer), "t", ends) as share,
    ):
        write_records(cast(Consumer, consumer), share, RecordWriter(out, "lines", progress), None, 1_000)


def test_each_poll_is_committed_once_it_is_written() -> None:
    consumer, out = Scripted("assigned", records(TP, 0, 1), records(OTHER, 5), KeyboardInterrupt()), io.BytesIO()
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, out)
    assert out.getvalue() == b"0\n1\n5\n"
    assert consumer.did == [{TP: 2}, {OTHER: 6}]


def test_records_that_were_not_flushed_are_not_committed() -> None:
    consumer = Scripted("assigned", records(TP, 0, 1))
    with pytest.raises(BrokenPipeError):
        consume(consumer, Refusing())
    assert consumer.did == []


def test_commit_refused_in_a_rebalance_is_repeated_before_revocation() -> None:
    consumer = Scripted("assigned", records(TP, 0), "revoked", records(OTHER, 7), KeyboardInterrupt())
    consumer.refusals = [RebalanceInProgressError()]
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, io.BytesIO())
    assert consumer.did == [{TP: 1}, {TP: 1}, {OTHER: 8}]


def test_lost_partitions_are_not_committed() -> None:
    consumer = Scripted("assigned", records(TP, 0), "lost", records(OTHER, 7), KeyboardInterrupt())
    consumer.refusals = [RebalanceInProgressError()]
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, io.BytesIO())
    assert consumer.did == [{TP: 1}, {OTHER: 8}]


def test_removed_member_prints_a_warning_and_continues(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = Scripted("assigned", records(TP, 0), records(TP, 1), KeyboardInterrupt())
    consumer.refusals = [CommitFailedError("the group has gone on")]
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, io.BytesIO())
    assert consumer.did == [{TP: 1}, {TP: 2}]
    assert (
        capsys.readouterr().err
        == "tidelog: the group has gone on; other members of the group will write some records again\n"
    )


def test_ctrl_c_during_a_commit_still_commits() -> None:
    consumer = Scripted("assigned", records(TP, 0))
    consumer.refusals = [cast(TidelogError, KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        consume(consumer, io.BytesIO())
    assert consumer.did == [{TP: 1}, {TP: 1}]


def test_reading_stops_and_commits_at_the_ends() -> None:
    ends = {TP: 2, OTHER: 1}
    consumer, out = Scripted("assigned", records(TP, 0, 1, 2), records(OTHER, 0)), io.BytesIO()
    consume(consumer, out, ends)
    assert out.getvalue() == b"0\n1\n0\n"
    assert consumer.did == [{TP: 2}, ("pause", TP), {OTHER: 1}, ("pause", OTHER)]


def test_position_past_the_end_is_not_moved_back() -> None:
    consumer, out = Scripted("assigned", records(TP, 50)), io.BytesIO()
    consume(consumer, out, {TP: 10})
    assert (out.getvalue(), consumer.did) == (b"", [("pause", TP)])


def test_records_before_an_unreadable_batch_are_written_and_committed() -> None:
    polled = {**records(TP, 0, 1), **records(OTHER, 5)}
    damaged = bytearray(polled[OTHER].records)
    damaged[-1] ^= 1
    polled[OTHER] = polled[OTHER]._replace(records=memoryview(damaged))
    consumer, out = Scripted("assigned", polled), io.BytesIO()
    with pytest.raises(CorruptMessageError, match=r"^t-1: the batch of offsets 5 to 5 cannot be read: "):
        consume(consumer, out)
    assert (out.getvalue(), consumer.did) == (b"0\n1\n", [{TP: 2}])
