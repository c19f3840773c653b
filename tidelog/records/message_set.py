"""Convert message sets, the format of records before Kafka 0.11, to RecordBatches v2.

Old producers send message sets, and fetches from old logs of Kafka return them.

    message set  for each message: offset int64, size int32, message
    message      crc uint32 (CRC-32 of the bytes after it), magic int8, attributes int8, only with magic 1: timestamp
                 int64, key length int32 (−1: null) + key, value length int32 + value
    attributes   bits 0–2 codec (gzip, snappy or lz4), bit 3 LogAppendTime (magic 1)

The magic is the message format, 0 or 1; it stands at the same byte as that of a RecordBatch v2. A compressed message
has a message set of the same format as its value. Clients before Kafka 0.10 write format 0, which has no timestamps.
They compute the checksum of an lz4 frame's header over the wrong bytes, so that readers of format 0 must ignore it.

In a log, a compressed message has the offset of its last inner message. Inner messages of format 0 have their offsets
in the log. Those of format 1 have relative offsets, which count from the first message that the producer sent. With
LogAppendTime, all inner messages have the timestamp of the compressed message.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from struct import Struct
from typing import NamedTuple

from tidelog.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from tidelog.model import NO_TIMESTAMP, Buffer
from tidelog.records.compression import decompress, lz4_library
from tidelog.records.encode import MAX_TIMESTAMP, BatchBuilder
from tidelog.records.header import CODEC_MASK, LOG_APPEND_TIME_BIT, Codec, stamp_log_append_time
from tidelog.records.varint import INT32_MAX

_MAGIC_AT = 16
_FORMATS = (0, 1)
_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)

_ENTRY = Struct(">qi")
_SIZE_AT = 8
_MESSAGE = Struct(">Ibb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
#: The sizes of a message of each format with an empty key and value.
_MIN_BYTES = tuple(_MESSAGE.size + magic * _TIMESTAMP.size + 2 * _LENGTH.size for magic in _FORMATS)

_NOT_ALONE = "a compressed message must be the only one in its message set"
#: The records whose encoded parts are joined at a time. A part that is kept alone takes about 50 bytes more.
_JOINED_RECORDS = 4096

_LZ4_MAGIC_BYTES, _LZ4_SIZE_BYTES, _LZ4_SIZE_BIT = 4, 8, 0x08


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.magic and self.attributes & LOG_APPEND_TIME_BIT)


def is_message_set(data: Buffer) -> bool:
    """Return whether the first record in `data` has message format 0 or 1, by its magic byte alone."""
    return len(data) > _MAGIC_AT and data[_MAGIC_AT] in _FORMATS


def to_record_batch(message_set: Buffer, limit: int) -> bytes:
    """Return one batch with the records of a message set, in their order, and with its codec.

    The records have the timestamps of their messages; those of format 0 have NO_TIMESTAMP. The offsets in the set are
    ignored, because the leader assigns new ones. Only one message is decoded at a time, so that a set of very many
    small messages takes a few times its decompressed size in memory.

    CorruptMessageError       a CRC does not match, or a value cannot be decompressed
    InvalidRecordError        the bytes are not exactly one message set, or a compressed message is not alone in it
    InvalidTimestampError     a timestamp is out of range, or says LogAppendTime, which only brokers write
    MessageTooLargeError      the set has more than `limit` bytes, as sent or decompressed
    UnsupportedCompressionTypeError
    """
    if len(message_set) > limit:
        raise MessageTooLargeError(f"a message set of {len(message_set)} bytes; at most {limit} are converted")
    sent = _sent(memoryview(message_set))
    first = next(sent, None)
    if first is None:
        raise InvalidRecordError("a message set without messages")
    messages: Iterator[_Message]
    if first.codec == Codec.NONE:
        messages = chain((first,), map(_uncompressed, sent))
    elif next(sent, None) is None:
        messages = _decompressed(first, limit)
    else:
        raise InvalidRecordError(_NOT_ALONE)
    builder = BatchBuilder(INT32_MAX)
    for number, message in enumerate(messages, 1):
        if not NO_TIMESTAMP <= message.timestamp_ms <= MAX_TIMESTAMP:
            raise InvalidTimestampError(f"timestamp {message.timestamp_ms} of a message is out of range")
        builder.try_append(message.timestamp_ms, message.key, message.value)
        if not number % _JOINED_RECORDS:
            builder.join()
    return builder.build(codec=Codec(first.codec))


def has_messages(records: Buffer) -> bool:
    """Return whether a message of format 0 or 1 is among fetched records, by the sizes and magic bytes alone."""
    at = 0
    while len(records) - at > _MAGIC_AT:
        (size,) = _LENGTH.unpack_from(records, at + _SIZE_AT)
        if size < _MIN_BYTES[0]:  # zeros, which also read as format 0
            return False
        if records[at + _MAGIC_AT] in _FORMATS:
            return True
        at += _ENTRY.size + size
    return False


def to_record_batches(records: Buffer, limit: int) -> bytes:
    """Return fetched records with batches in place of the messages of formats 0 and 1, at the same offsets.

    Batches stay as they are, and an incomplete last message is left out. A compressed message becomes a batch with its
    codec, or several if compaction has left gaps. Only one message is decompressed at a time.

    CorruptMessageError    a CRC does not match, or a value cannot be decompressed
    InvalidRecordError     a message has another content than its format allows
    MessageTooLargeError   the value of a message has more than `limit` bytes, decompressed
    UnsupportedCompressionTypeError
    """
    view = memoryview(records)
    parts: list[Buffer] = []
    for (codec, is_batch), entries in groupby(_entries(view), lambda each: _kind_of(view, each)):
        if is_batch:
            parts += (view[start:end] for start, end in entries)
            continue
        messages = (message for start, end in entries for message in _messages(view[start:end]))
        if codec == Codec.NONE:
            parts += _batches(messages, Codec.NONE)
        else:
            for message in messages:
                parts += _batches(_stored(message, limit), Codec(codec))
    return b"".join(parts)


def _entries(records: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each whole batch or message; the sizes are those of `has_messages`."""
    start = 0
    while len(records) - start > _MAGIC_AT:
        end = start + _ENTRY.size + _LENGTH.unpack_from(records, start + _SIZE_AT)[0]
        if not start + _ENTRY.size + _MIN_BYTES[0] <= end <= len(records):
            return
        yield start, end
        start = end


def _kind_of(records: memoryview, entry: tuple[int, int]) -> tuple[int, bool]:
    """Return the codec of a message and False; 0 and True for a batch."""
    start, _ = entry
    is_batch = records[start + _MAGIC_AT] not in _FORMATS
    return (0 if is_batch else records[start + _MAGIC_AT + 1] & CODEC_MASK), is_batch


def _stored(message: _Message, limit: int) -> Iterator[_Message]:
    """Yield the inner messages of a compressed message of a log, with their offsets and timestamps in the log.

    Raises the errors of `_decompressed`.
    """
    compressed = list(_decompressed(message, limit))
    base_offset = message.offset - compressed[-1].offset if message.magic else 0
    for inner in compressed:
        offset = base_offset + inner.offset
        if message.is_log_append_time:
            yield message._replace(offset=offset, key=inner.key, value=inner.value)
        else:
            yield inner._replace(offset=offset)


def _batches(messages: Iterable[_Message], codec: Codec) -> Iterator[bytes | bytearray]:
    """Yield batches of the messages: one for each run of offsets without a gap and, with LogAppendTime, of one time."""

    def run_of(numbered: tuple[int, _Message]) -> tuple[int, int | None]:
        number, message = numbered
        return message.offset - number, message.timestamp_ms if message.is_log_append_time else None

    for _, run in groupby(enumerate(messages), run_of):
        _, first = next(run)
        builder = BatchBuilder(INT32_MAX)
        for message in chain((first,), (message for _, message in run)):
            if not NO_TIMESTAMP <= message.timestamp_ms <= MAX_TIMESTAMP:
                raise InvalidRecordError(f"timestamp {message.timestamp_ms} of the message at offset {message.offset}")
            builder.try_append(message.timestamp_ms, message.key, message.value)
        batch = builder.build(base_offset=first.offset, codec=codec)
        if first.is_log_append_time:
            stamped = bytearray(batch)
            stamp_log_append_time(stamped, 0, first.timestamp_ms)
            yield stamped
        else:
            yield batch


def _sent(message_set: memoryview) -> Iterator[_Message]:
    """Yield the messages of the set that a producer sent. InvalidTimestampError; the errors of `_messages`."""
    for message in _messages(message_set):
        if message.is_log_append_time:
            raise InvalidTimestampError("a producer must not mark its messages as LogAppendTime")
        yield message


def _uncompressed(message: _Message) -> _Message:
    """Return the message, which follows an uncompressed one. InvalidRecordError if it is compressed."""
    if message.codec != Codec.NONE:
        raise InvalidRecordError(_NOT_ALONE)
    return message


def _messages(message_set: memoryview) -> Iterator[_Message]:
    """Yield the messages of a message set, without decompressing any. CorruptMessageError, InvalidRecordError."""
    start = 0
    while start < len(message_set):
        at = start + _ENTRY.size
        offset, size = _ENTRY.unpack_from(message_set, start) if at <= len(message_set) else (0, 0)
        end = at + size
        if size < _MIN_BYTES[0] or end > len(message_set):
            raise InvalidRecordError(f"no whole message begins at byte {start} of {len(message_set)}")
        yield _message(message_set[at:end], offset)
        start = end


def _message(data: memoryview, offset: int) -> _Message:
    crc, magic, attributes = _MESSAGE.unpack_from(data)
    if crc != (actual := zlib.crc32(data[_LENGTH.size :])):
        raise CorruptMessageError(f"CRC {actual:#010x} of a message, not {crc:#010x}")
    if magic not in _FORMATS:
        raise InvalidRecordError(f"a message of format {magic} in a message set")
    if len(data) < _MIN_BYTES[magic]:
        raise InvalidRecordError(f"a message of {len(data)} bytes; format {magic} has at least {_MIN_BYTES[magic]}")
    at, timestamp_ms = _MESSAGE.size, NO_TIMESTAMP
    if magic:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(data, at)
        at += _TIMESTAMP.size
    key, at = _field(data, at, reserved=_LENGTH.size)
    value, at = _field(data, at)
    if at != len(data):
        raise InvalidRecordError(f"{len(data) - at} bytes follow the value of a message")
    return _Message(offset, magic, attributes, timestamp_ms, key, value)


def _field(data: memoryview, at: int, reserved: int = 0) -> tuple[bytes | None, int]:
    """Return the key or value whose length stands at `at`, and its end.

    InvalidRecordError if fewer than `reserved` bytes follow it.
    """
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(data) - at - reserved:
        raise InvalidRecordError(f"a key or value of {length} bytes in a message of {len(data)}")
    return bytes(data[at : at + length]), at + length


def _decompressed(message: _Message, limit: int) -> Iterator[_Message]:
    """Yield the messages in the value of a compressed one. The errors of `to_record_batch`."""
    if message.codec not in _CODECS:
        raise UnsupportedCompressionTypeError(f"message format {message.magic} cannot have codec {message.codec}")
    if message.value is None:
        raise InvalidRecordError("a compressed message without a value")
    value = message.value
    if message.codec == Codec.LZ4 and not message.magic:
        value = _with_right_checksum(value)
    messages = _messages(memoryview(decompress(message.codec, value, limit)))
    inner = None
    for inner in messages:
        if inner.magic != message.magic or inner.codec != Codec.NONE:
            raise InvalidRecordError("a compressed message contains a compressed one, or one of another format")
        yield inner
    if inner is None:
        raise InvalidRecordError("a compressed message without records")


def _with_right_checksum(frame: bytes) -> bytes:
    """Return the lz4 frame with the right checksum of its header.

    All values of this single byte are tried, because the library checks it but has no function that computes it.
    A frame for which none is right is returned unchanged.
    """
    lz4 = lz4_library()
    flags = frame[_LZ4_MAGIC_BYTES] if len(frame) > _LZ4_MAGIC_BYTES else 0
    at = _LZ4_MAGIC_BYTES + 2 + (_LZ4_SIZE_BYTES if flags & _LZ4_SIZE_BIT else 0)
    before, after = frame[:at], frame[at + 1 :]
    for checksum in range(256):
        try:
            lz4.get_frame_info(before + bytes([checksum]))
        except RuntimeError:
            continue
        return before + bytes([checksum]) + after
    return frame
