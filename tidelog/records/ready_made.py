"""Represent an encoded batch that a program passes to the producer, from another encoder or from a log."""

from __future__ import annotations

from tidelog.errors import CorruptMessageError, InvalidRecordError
from tidelog.model import Buffer
from tidelog.records.header import (
    HEADER,
    Codec,
    TimestampType,
    read_header,
    seal,
    validate_batch,
)


class ReadyMadeBatch:
    """Takes the place of a `BatchBuilder` for an encoded batch: `build` returns it for another producer.

    record_count   the number of its records; no record can be added
    size_bytes     the size of the encoded batch, compressed as it is
    """

    __slots__ = ("_batch", "_header", "record_count", "size_bytes")

    def __init__(self, batch: Buffer) -> None:
        """Check the batch and keep it. The buffer must not change until the last `build`, which copies it.

        Raises CorruptMessageError if the batch is damaged or not exactly one, UnsupportedForMessageFormatError for
        another format, and InvalidRecordError if a producer may not send it: it has no records, gaps between offsets,
        LogAppendTime timestamps, or is transactional.
        """
        header = read_header(batch)
        validate_batch(batch, 0, header)
        if header.size_bytes != len(batch):
            raise CorruptMessageError(f"{len(batch) - header.size_bytes} bytes after the batch")
        if not header.record_count or header.record_count != header.last_offset_delta + 1:
            raise InvalidRecordError(f"{header.record_count} records on {header.last_offset_delta + 1} offsets")
        if header.is_control or header.is_transactional:
            raise InvalidRecordError("a batch of a transaction")
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            raise InvalidRecordError("a batch with the broker's timestamps")
        self._batch = batch
        self._header = header
        self.record_count = header.record_count
        self.size_bytes = header.size_bytes

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the records (ms), as the batch's header states it."""
        return self._header.max_timestamp

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        codec: Codec = Codec.NONE,
    ) -> bytes:
        """Return a copy of the batch with this producer's fields and a new CRC.

        The base offset becomes 0, and the leader epoch −1. The records keep their compression, and `codec` is ignored.
        """
        del codec
        draft = bytearray(self._batch)
        header = self._header._replace(
            base_offset=0,
            partition_leader_epoch=-1,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        HEADER.pack_into(draft, 0, *header)
        seal(draft, 0, len(draft))
        return bytes(draft)
