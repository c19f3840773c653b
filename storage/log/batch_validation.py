"""Validates a batch from a producer before a leader appends it (Kafka: LogValidator).

The rules and error codes are those of Kafka 3.9 in most cases. An error that a retry cannot cure is not
CORRUPT_MESSAGE, because clients retry that one. Three things that Kafka accepts are refused, because no reader could
use them: an undefined codec, a delete horizon (which only compaction sets), and bytes after the batch.

Records are decoded, without their headers, in two cases only. In the first, the topic requires something that the batch
header does not show: a key in each record (`cleanup.policy=compact`), or timestamps that are not too old. In the
second, the header shows a timestamp that is too late, so that the records with such a timestamp must be found. An error
about single records names them (KIP-467), so that the producer can send the others again. Records are compressed again
if the topic asks for another codec (`compression.type`).

A few kilobytes may hold half a million records or decompress to very many bytes, and a slow codec needs half a second
for a MiB. The validation of such a batch is therefore a long step (`storage.steps`), which may run on another thread,
because the result depends on the batch and the topic's settings alone. A batch that would take long even there is
refused as too large, so that clients send smaller ones.

A message set (formats 0 and 1) of an old client is converted to a batch first, which is a long step too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from storage.configs.log_config import LogConfig
from storage.log.recompression import recompress
from storage.segments.timestamp_search import MAX_QUICK_BYTES, MAX_QUICK_RECORDS
from storage.steps import Steps, run_steps
from tidelog.errors import (
    BrokerError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records import BatchHeader, Codec, TimestampType, outline_batch, read_header, to_record_batch
from tidelog.records.header import (
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MIN_RECORD_BYTES,
    check_crc,
    header_of,
)

#: The most records of one batch. Limits the work of a look-up by time, and of an append that decodes records.
MAX_RECORDS = 1 << 19

#: The most bytes of records that are decompressed for an append, unless max.message.bytes is more.
MAX_INSPECTED_BYTES = 16 << 20

#: The most records that one error names.
MAX_NAMED_RECORDS = 1_000

#: The most bytes of records that the slowest codec compresses in a few ms.
MAX_QUICKLY_COMPRESSED_BYTES = 16 << 10


class ValidatedBatch(NamedTuple):
    """A batch and its header, ready for an append. The leader still assigns the batch's offsets and epoch."""

    header: BatchHeader
    data: Buffer


def validate_batch(batch: Buffer, config: LogConfig, now_ms: int) -> ValidatedBatch:
    """Return the single batch in `batch` if its producer may append it to a topic with these settings.

    The result is recompressed if `compression.type` names another codec; `batch` is not changed.

    CorruptMessageError, InvalidRecordError, MessageTooLargeError, RecordListTooLargeError, InvalidTimestampError,
    InvalidTxnStateError, UnsupportedCompressionTypeError.
    """
    return run_steps(validation_steps(batch, config, now_ms))


def conversion_steps(message_set: Buffer, config: LogConfig, now_ms: int) -> Steps[ValidatedBatch]:
    """Return the steps that convert a message set (formats 0 and 1), and then validate the batch as `validate_batch`.

    The conversion is one long step, and raises the errors of `to_record_batch` as well.
    """
    outcome = yield partial(to_record_batch, message_set, _most_inspected_bytes(config))
    return (yield from validation_steps(outcome.get(), config, now_ms))


def validation_steps(batch: Buffer, config: LogConfig, now_ms: int) -> Steps[ValidatedBatch]:
    """Return the steps of `validate_batch`. Decoding or recompressing many or large records is one long step."""
    header = _checked_header(batch, config)
    if not _needs_records(header, config, now_ms):
        return ValidatedBatch(header, batch)
    limit = MAX_QUICK_BYTES if config.codec in (None, header.codec) else MAX_QUICKLY_COMPRESSED_BYTES
    if header.record_count <= MAX_QUICK_RECORDS and header.size_bytes <= limit:
        try:
            return _with_records(batch, header, config, now_ms, limit)
        except MessageTooLargeError:
            pass  # the records have more than `limit` bytes when decompressed
    outcome = yield partial(_with_records, batch, header, config, now_ms, _most_inspected_bytes(config))
    validated: ValidatedBatch = outcome.get()
    return validated


def validate_own(batch: Buffer, config: LogConfig) -> ValidatedBatch:
    """Return a batch that this broker created itself; only its size is checked.

    MessageTooLargeError, RecordListTooLargeError.
    """
    _check_size(len(batch), config)
    return ValidatedBatch(read_header(batch), batch)


def _most_inspected_bytes(config: LogConfig) -> int:
    return max(MAX_INSPECTED_BYTES, config.max_message_bytes)


def _checked_header(batch: Buffer, config: LogConfig) -> BatchHeader:
    present = len(batch)
    if present < HEADER_BYTES:
        raise InvalidRecordError(f"{present} bytes are fewer than a batch header has")
    # The fields are unpacked once, because every append runs this code.
    fields = HEADER.unpack_from(batch)
    base_offset, length, _, magic, _, attributes, last_delta, _, _, producer, epoch, sequence, count = fields
    if magic != MAGIC:
        raise InvalidRecordError(f"message format {magic}; only {MAGIC} is supported")
    size = length + LENGTH_OVERHEAD
    if size < HEADER_BYTES:
        raise CorruptMessageError(f"batch length {length} is shorter than a header")
    if size > present:
        raise InvalidRecordError(f"the batch has {size} bytes, but only {present} were sent")
    if base_offset:
        raise InvalidRecordError(f"base offset {base_offset}: must be 0 in a batch from a producer")
    _check_size(size, config)
    header = header_of(fields)
    check_crc(batch, 0, header)
    if size != present:
        raise InvalidRecordError(f"{present - size} bytes follow the batch: only one batch may be sent at a time")
    if count <= 0 or count != last_delta + 1:
        raise InvalidRecordError(f"the batch has {count} records but {last_delta + 1} offsets")
    if count * MIN_RECORD_BYTES > size - HEADER_BYTES and header.codec == Codec.NONE:
        raise InvalidRecordError(f"{count} records do not fit into {size - HEADER_BYTES} bytes")
    if count > MAX_RECORDS:
        raise MessageTooLargeError(f"the batch has {count} records; at most {MAX_RECORDS} are allowed")
    if attributes:
        _check_attributes(header)
    if producer >= 0 and (epoch < 0 or sequence < 0):
        raise InvalidRecordError(f"producer {producer}: the batch has no producer epoch or no sequence")
    return header


def _is_late(timestamp: int, config: LogConfig, now_ms: int) -> bool:
    """Return whether the topic refuses a timestamp because it lies too far after the broker's clock."""
    return not config.log_append_time and timestamp - now_ms > config.latest_lead_ms


def _needs_records(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Return whether the records must be decoded: to check or recompress them, or to find those that are too late."""
    codec = config.codec
    return (
        config.inspects_records
        or (codec is not None and codec != header.codec)
        or _is_late(header.max_timestamp, config, now_ms)
    )


def _check_size(size_bytes: int, config: LogConfig) -> None:
    if size_bytes > config.max_message_bytes:
        raise MessageTooLargeError(f"the batch has {size_bytes} bytes; max.message.bytes is {config.max_message_bytes}")
    if size_bytes > config.segment_bytes:
        raise RecordListTooLargeError(f"the batch has {size_bytes} bytes; segment.bytes is {config.segment_bytes}")


def _check_attributes(header: BatchHeader) -> None:
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"codec {header.codec} is not defined")
    if header.is_control:
        raise InvalidRecordError("a producer must not send control batches")
    if header.is_transactional:
        raise InvalidTxnStateError(f"producer {header.producer_id} has no open transaction")
    if header.delete_horizon_ms is not None:
        raise InvalidRecordError("a producer must not set a delete horizon")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("a producer must not mark its batch as LogAppendTime")


def _with_records(batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, limit: int) -> ValidatedBatch:
    """Check and recompress the records as needed, and return the batch to append.

    MessageTooLargeError if the records have more than `limit` bytes when decompressed.
    """
    try:
        if config.inspects_records or _is_late(header.max_timestamp, config, now_ms):
            _check_records(batch, header, config, now_ms, limit)
        codec = config.codec
        if codec is None or codec == header.codec:
            return ValidatedBatch(header, batch)
        data = recompress(batch, header, codec, config.compression_level, limit)
    except CorruptMessageError as error:
        raise InvalidRecordError(f"the records cannot be decoded: {error}") from None
    _check_size(len(data), config)
    return ValidatedBatch(read_header(data), data)


def _check_records(batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, limit: int) -> None:
    """Raise an error if the topic's settings forbid some of the records; name at most `MAX_NAMED_RECORDS` of those.

    InvalidTimestampError if a timestamp is among the faults, otherwise InvalidRecordError. No record is named if only
    the header has a wrong timestamp.
    """
    outline = outline_batch(batch, header, limit=limit)
    timestamps = outline.timestamps()  # raises if a timestamp leaves 64 bits, because no reader could decode it
    keyless: dict[int, str] = {}
    if config.compact and None in outline.keys:
        fault = "a record without a key; the topic is compacted by key"
        keyless = {index: fault for index, key in enumerate(outline.keys) if key is None}
    mistimed: dict[int, str] = {}
    if config.bounds_age or _is_late(header.max_timestamp, config, now_ms):
        for index, timestamp in enumerate(timestamps):
            if fault := _fault_of_time(timestamp, config, now_ms):
                mistimed[index] = fault
        if not mistimed and (fault := _fault_of_time(header.max_timestamp, config, now_ms)):
            raise InvalidTimestampError(fault)  # only the header has this timestamp, and none of the records
    if mistimed:
        raise _refusal(InvalidTimestampError, {**keyless, **mistimed}, header.record_count)
    if keyless:
        raise _refusal(InvalidRecordError, keyless, header.record_count)


def _fault_of_time(timestamp: int, config: LogConfig, now_ms: int) -> str:
    """Return why the topic refuses a record with this timestamp; empty if it takes the record."""
    if _is_late(timestamp, config, now_ms):
        bound = f"{config.latest_lead_ms} ms after the broker's clock (message.timestamp.after.max.ms)"
    elif config.bounds_age and timestamp < now_ms - config.earliest_lag_ms and timestamp != NO_TIMESTAMP:
        bound = f"{config.earliest_lag_ms} ms before the broker's clock (message.timestamp.before.max.ms)"
    else:
        return ""
    return f"timestamp {timestamp} is more than {bound}"


def _refusal(kind: type[BrokerError], faults: Mapping[int, str], record_count: int) -> BrokerError:
    """Return the error for a batch whose records at these indexes have these faults."""
    named = sorted(faults)[:MAX_NAMED_RECORDS]
    text = faults[named[0]]
    if record_count > 1:
        text = f"record {named[0]} of the batch, which has records 0 to {record_count - 1}: {text}"
    if len(faults) > 1:
        text += f"; {len(faults) - 1} more of its records are refused too"
    return kind(text, record_errors={index: faults[index] for index in named})
