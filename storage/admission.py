"""What a batch from a producer must fulfil before a leader appends it."""

from __future__ import annotations

from storage.config import LogConfig
from tidelog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
)
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records import BatchHeader, TimestampType, decode_columns, read_header, validate_batch

_NO_BOUND = 2**63 - 1


def admit(batch: Buffer, config: LogConfig, now_ms: int) -> BatchHeader:
    """The header of the one batch in `batch`, as its producer wrote it.

    CorruptMessageError, UnsupportedForMessageFormatError, InvalidRecordError, MessageTooLargeError,
    RecordListTooLargeError, InvalidTimestampError.
    """
    header = read_header(batch)
    size = header.size_bytes
    if size > config.max_message_bytes:
        raise MessageTooLargeError(f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}")
    validate_batch(batch, 0, header)
    if size != len(batch):
        raise InvalidRecordError(f"{len(batch) - size} bytes follow the batch; one batch may be sent at a time")
    if size > config.segment_bytes:
        raise RecordListTooLargeError(f"a batch of {size} bytes; segment.bytes is {config.segment_bytes}")
    if header.record_count != header.last_offset_delta + 1 or header.record_count == 0:
        raise InvalidRecordError(f"{header.record_count} records on {header.last_offset_delta + 1} offsets")
    if header.is_control:
        raise InvalidRecordError("only a coordinator writes control batches")
    if not config.log_append_time:
        _check_create_time(batch, header, config, now_ms)
    return header


def _check_create_time(batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("a producer must not mark its batch as LogAppendTime")
    latest = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > latest:
        raise InvalidTimestampError(
            f"timestamp {header.max_timestamp} is later than {latest}: the broker's clock and "
            f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms}"
        )
    if config.message_timestamp_before_max_ms == _NO_BOUND:
        return
    # The header does not know the smallest timestamp; who sets this bound pays for the decoding.
    earliest = now_ms - config.message_timestamp_before_max_ms
    for timestamp in decode_columns(batch).timestamps:
        if timestamp < earliest and timestamp != NO_TIMESTAMP:
            raise InvalidTimestampError(
                f"timestamp {timestamp} is earlier than {earliest}: the broker's clock and "
                f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}"
            )
