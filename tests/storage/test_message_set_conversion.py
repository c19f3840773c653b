"""Message sets of old clients: converted in one long step, and then validated like the batches of other clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.log.batch_validation import MAX_INSPECTED_BYTES, ValidatedBatch, conversion_steps, validate_batch
from storage.steps import PAUSE, SteppedWork, call, run_steps
from tests.message_sets import message, wrapped
from tests.storage.logs import NOW, config, open_log, read_all
from tidelog.errors import (
    BrokerError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
)
from tidelog.records import Codec, decode_records, read_header, to_record_batch

HOUR_MS = 3_600_000


def convert(message_set: bytes, **settings: object) -> ValidatedBatch:
    return run_steps(conversion_steps(message_set, config(**settings), NOW))


@pytest.mark.parametrize(
    "sent", [message(), wrapped(message() * 3, Codec.GZIP), message(magic=0)], ids=["plain", "compressed", "format 0"]
)
def test_conversion_is_one_long_step_and_then_a_validation(sent: bytes) -> None:
    work = SteppedWork(conversion_steps(sent, config(), NOW))
    work.resume()
    assert not work.finished and work.step is not PAUSE
    work.resume(call(work.step))
    assert work.finished
    assert work.result == validate_batch(to_record_batch(sent, MAX_INSPECTED_BYTES), config(), NOW)


@pytest.mark.parametrize(
    ("sent", "settings", "error", "text"),
    [
        (message() + message()[:-1], {}, InvalidRecordError, "no whole message"),
        (message()[:-1] + b"w", {}, CorruptMessageError, "CRC"),
        (message() + message(key=None), {"cleanup_policy": "compact"}, InvalidRecordError, "record 1 of the batch"),
        (message(bytes(60)) * 2, {"max_message_bytes": 180}, MessageTooLargeError, "max.message.bytes is 180"),
        (message(timestamp=NOW + 2 * HOUR_MS), {}, InvalidTimestampError, "after the broker's clock"),
    ],
    ids=["cut", "damaged", "without a key", "too large as a batch", "too late"],
)
def test_refused_message_set_says_why(
    sent: bytes, settings: dict[str, object], error: type[BrokerError], text: str
) -> None:
    with pytest.raises(error, match=text):
        convert(sent, **settings)


def test_message_set_of_more_bytes_is_converted_if_messages_may_be_larger() -> None:
    sent = message(bytes(MAX_INSPECTED_BYTES))
    with pytest.raises(MessageTooLargeError, match="are converted"):
        convert(sent)
    larger = convert(sent, max_message_bytes=2 * MAX_INSPECTED_BYTES, segment_bytes=4 * MAX_INSPECTED_BYTES)
    assert larger.header.record_count == 1


def test_converted_batch_has_the_codec_that_the_topic_asks_for() -> None:
    sent = wrapped(message() * 50, Codec.GZIP)
    assert convert(sent).header.codec == Codec.GZIP
    assert convert(sent, compression_type="zstd").header.codec == Codec.ZSTD
    assert convert(sent, compression_type="uncompressed").header.codec == Codec.NONE


def test_log_append_time_replaces_the_missing_timestamps_of_format_0(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_type="LogAppendTime")
    log.append_validated(convert(message(magic=0), message_timestamp_type="LogAppendTime"), 0, NOW)
    (record,) = decode_records(read_all(log))
    assert (record.timestamp, record.value) == (NOW, b"v")


def test_missing_timestamps_of_format_0_stay_missing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_validated(convert(message(magic=0)), 0, NOW)
    (record,) = decode_records(read_all(log))
    assert record.timestamp == read_header(read_all(log)).max_timestamp == -1
