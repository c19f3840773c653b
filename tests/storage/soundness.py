"""Checks that hold for every opened log, whatever its files held before: all derived data agrees with a scan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from storage.log.leader_epochs import EpochStart
from storage.log.log import Log
from storage.producers.producer_state import ProducerState
from storage.segments.offset_index import OffsetPosition
from storage.segments.time_index import IndexedTime
from tests.storage.logs import first_at_or_after, largest
from tidelog.records import BatchHeader, decode_records, iter_headers, validate_batch


def batches_of(log: Log) -> list[bytes]:
    """Return every batch from the log start on, as a reader gets it; each must have a right CRC."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while data := log.read(offset, 3000):
        for position, header in iter_headers(data):
            validate_batch(data, position, header)
            found.append(data[position : position + header.size_bytes])
            offset = header.next_offset
    assert offset == log.log_end_offset
    return found


def headers_of(batches: list[bytes]) -> list[BatchHeader]:
    return [header for batch in batches for _, header in iter_headers(batch)]


def assert_sound(log: Log, *, gaps: bool = False) -> list[bytes]:
    """Return the batches of a log after checking that all its data agrees. `gaps`: it may have been compacted."""
    assert 0 <= log.log_start_offset <= log.log_end_offset
    assert log.recovery_point <= log.log_end_offset
    batches = batches_of(log)
    headers = headers_of(batches)
    for before, after in pairwise(headers):
        assert after.base_offset >= before.next_offset if gaps else after.base_offset == before.next_offset
        assert after.partition_leader_epoch >= before.partition_leader_epoch
    if headers:
        assert headers[0].last_offset >= log.log_start_offset
        assert headers[0].base_offset <= log.log_start_offset or gaps
    for base_offset in log.segment_base_offsets:
        _assert_indexed(log, base_offset)
    _assert_epochs(log, headers)
    _assert_found_by_time(log, batches)
    _assert_producers(log, headers, gaps=gaps)
    return batches


def _assert_indexed(log: Log, base_offset: int) -> None:
    segment = next(segment for segment in log._segments if segment.base_offset == base_offset)
    data = segment.log.read(0, segment.log.size())
    assert len(data) == segment.size == segment.log.size(), "nothing lies after the last batch"
    scanned = list(iter_headers(data))
    assert sum(header.size_bytes for _, header in scanned) == segment.size
    assert segment.next_offset == (scanned[-1][1].next_offset if scanned else base_offset)
    batches = {OffsetPosition(header.last_offset, position) for position, header in scanned}
    maxima: dict[int, IndexedTime] = {}
    reached = IndexedTime(-1, base_offset)
    for position, header in scanned:
        if header.max_timestamp > reached.timestamp:
            reached = IndexedTime(header.max_timestamp, header.last_offset)
        maxima[position] = reached
    assert segment.largest == reached
    entries = [segment.offset_index.entry(slot) for slot in range(len(segment.offset_index))]
    assert batches.issuperset(entries)
    assert entries == sorted(set(entries))
    times = [segment.time_index.entry(slot) for slot in range(len(segment.time_index))]
    assert set(maxima.values()).issuperset(times)
    assert times == sorted(set(times))
    assert not segment.offset_index.has_partial_entry
    assert not segment.time_index.has_partial_entry
    for entry in entries:
        # up to the batch of an entry, no record exceeds the maximum in the time index at that moment
        assert any(time == maxima[entry.position] for time in times) or maxima[entry.position].timestamp < 0


def epoch_of(offset: int, epochs: Sequence[EpochStart]) -> int | None:
    """Return the epoch in which the offset was appended."""
    return next((entry.epoch for entry in reversed(epochs) if entry.start_offset <= offset), None)


def _assert_epochs(log: Log, headers: list[BatchHeader]) -> None:
    for before, after in pairwise(log.epochs):
        assert before.epoch < after.epoch
        assert before.start_offset < after.start_offset
    seen = {header.partition_leader_epoch for header in headers}
    known = {epoch for epoch, _ in log.epochs}
    assert known >= seen, f"epochs {seen} stand in the log, {known} in the cache"
    for header in headers:
        start = max(header.base_offset, log.log_start_offset)
        assert epoch_of(start, log.epochs) == header.partition_leader_epoch
    for epoch, start in log.epochs:
        assert start < log.log_end_offset or epoch not in seen


def _assert_found_by_time(log: Log, batches: list[bytes]) -> None:
    records = [
        (record, header.partition_leader_epoch)
        for batch in batches
        for _, header in iter_headers(batch)
        for record in decode_records(batch)
        if record.offset >= log.log_start_offset
    ]
    stamps = sorted({record.timestamp for record, _ in records})
    for target in {0, *(stamp + step for stamp in stamps for step in (0, 1))}:
        found = log.offset_for_timestamp(target, log.log_end_offset)
        assert found == first_at_or_after(records, target, log.log_end_offset), f"time {target}"
    assert log.offset_of_max_timestamp(log.log_end_offset) == largest(records, log.log_end_offset)


def _assert_producers(log: Log, headers: list[BatchHeader], *, gaps: bool) -> None:
    expected = ProducerState()
    for header in headers:
        expected.update(header)
    for producer_id, producer in expected.producers.items():
        held = log._appender.producers.producers[producer_id]
        assert held.epoch == producer.epoch
        remembered = list(held.batches)
        assert remembered
        if gaps:
            # Compaction keeps the last batch of a producer. If a truncation removed that one, a snapshot may know an
            # earlier one that compaction removed. The state then knows more than the batches, never less.
            assert remembered[-1].last_offset >= producer.batches[-1].last_offset
        else:
            common = min(len(remembered), len(producer.batches))
            assert list(producer.batches)[-common:] == remembered[-common:]
    end = log.log_end_offset
    for producer in log._appender.producers.producers.values():
        assert all(batch.last_offset < end for batch in producer.batches), "nothing is remembered that is not there"
