"""The steps of a look-up inside one batch: a small batch with very many records never blocks the loop for long."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from storage.log.batch_validation import validate_batch
from storage.segments.timestamp_search import (
    MAX_QUICK_BYTES,
    MAX_QUICK_RECORDS,
    RecordSearch,
    TimestampOffset,
)
from storage.steps import PAUSE, SteppedWork, call
from tests.storage.logs import NOW, batch, config, count_steps, open_log
from tidelog.errors import UnreadableRecordsError
from tidelog.records import HEADER_BYTES, Codec, compress, read_header
from tidelog.records.header import HEADER, seal
from tidelog.records.varint import encode_varint


def with_block(block: bytes, count: int = 1, codec: Codec = Codec.ZSTD) -> bytes:
    """Return a batch of `NOW` with these bytes, compressed, as its records."""
    data = bytearray(HEADER_BYTES) + compress(codec, block)
    HEADER.pack_into(data, 0, 0, len(data) - 12, -1, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    seal(data, 0, len(data))
    return bytes(data)


def record(value: bytes = b"v", headers: int = 0, delta: int = 0) -> bytes:
    """Return a record with the key k whose headers have an empty name and no value."""
    body = b"\0\0" + encode_varint(delta) + b"\x02k" + encode_varint(len(value)) + value
    body += encode_varint(headers) + b"\0\1" * headers
    return encode_varint(len(body)) + body


def calls_of(work: object) -> int:
    """Return how many functions, in Python or in C, are called."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    return count


def test_headers_are_stepped_over_however_many_they_are(tmp_path: Path) -> None:
    data = with_block(record(headers=500_000))
    assert len(data) < 1000
    compacted = config(cleanup_policy="compact", message_timestamp_before_max_ms=1000)
    log = open_log(tmp_path)
    log.append_as_leader(data, 0, NOW)
    assert calls_of(lambda: validate_batch(data, compacted, NOW)) < 200
    assert calls_of(lambda: log.offset_for_timestamp(NOW, 1)) < 500
    assert calls_of(lambda: log.offset_of_max_timestamp(1)) < 500
    assert log.offset_for_timestamp(NOW, 1) == log.offset_of_max_timestamp(1) == TimestampOffset(NOW, 0, 0)


LONG = [
    pytest.param(with_block(record(bytes(MAX_QUICK_BYTES))), id="of too many bytes"),
    pytest.param(
        with_block(b"".join(record(delta=each) for each in range(MAX_QUICK_RECORDS + 1)), MAX_QUICK_RECORDS + 1),
        id="of too many records",
    ),
]


@pytest.mark.parametrize("data", LONG)
def test_look_up_makes_a_long_search_a_step_of_its_own(tmp_path: Path, data: bytes) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(batch(NOW - 1), 0, NOW)
    log.append_as_leader(data, 0, NOW)
    end = log.log_end_offset
    for steps in (log.offset_for_timestamp_steps(NOW, end), log.offset_of_max_timestamp_steps(end)):
        assert count_steps(steps) == (TimestampOffset(NOW, 1, 0), 1)
    found = [log.offset_for_timestamp(NOW, 10**6), log.offset_of_max_timestamp(10**6)]
    assert found == [TimestampOffset(NOW, 1, 0)] * 2, "the same for a caller that may block"


def test_search_at_the_limits_runs_at_once() -> None:
    for data in (
        with_block(record(bytes(MAX_QUICK_BYTES - len(record(bytes(MAX_QUICK_BYTES))) + MAX_QUICK_BYTES))),
        with_block(b"".join(record(delta=each) for each in range(MAX_QUICK_RECORDS)), MAX_QUICK_RECORDS),
    ):
        search = RecordSearch(NOW, 0, 10**6, read_header(data), data)
        assert count_steps(search.steps()) == (TimestampOffset(NOW, 0, -1), 0)


def test_long_search_is_made_once_though_the_log_grows_and_is_trimmed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(batch(NOW - 1), 0, NOW)
    log.append_as_leader(with_block(record(bytes(MAX_QUICK_BYTES))), 0, NOW)
    look_up = SteppedWork(log.offset_for_timestamp_steps(NOW, 2))
    look_up.resume()
    assert look_up.step is not PAUSE
    log.append_as_leader(batch(NOW), 0, NOW)
    log.raise_log_start(1)
    look_up.resume(call(look_up.step))
    assert look_up.finished and look_up.result == TimestampOffset(NOW, 1, 0)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_block(b"no record"), id="no records"),
        pytest.param(with_block(bytes(129 << 20)), id="more than any reader takes"),
        pytest.param(with_block(b"\x0e", codec=Codec.ZSTD)[:-1] + b"?", id="not compressed as it says"),
    ],
)
def test_unreadable_records_error_names_the_offset(data: bytes) -> None:
    sealed = bytearray(data)
    seal(sealed, 0, len(sealed))
    search = RecordSearch(NOW, 0, 10, read_header(sealed)._replace(base_offset=7), bytes(sealed))
    with pytest.raises(UnreadableRecordsError, match="at offset 7 cannot be read") as caught:
        search.run()
    assert (caught.value.offset, caught.value.code, caught.value.retriable) == (7, 87, False)
