"""Encode and decode control batches: one record that tells readers of the log how a transaction ended.

batch   attributes transactional and control, the transaction's producer id and epoch, no sequence, one record
key     int16 version (0), int16 type: 0 abort, 1 commit (other types belong to other protocols, and readers skip them)
value   int16 version (0), int32 epoch of the coordinator that decided

A later version only appends fields.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from tidelog.errors import CorruptMessageError
from tidelog.model import Buffer
from tidelog.records.decode import decode_records
from tidelog.records.encode import encode_batch
from tidelog.records.header import CONTROL_BIT, HEADER, TRANSACTIONAL_BIT, read_header, seal

_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class MarkerKind(IntEnum):
    """The outcome of a transaction, with Kafka's numbers."""

    ABORT = 0
    COMMIT = 1


class TransactionMarker(NamedTuple):
    """A control record at `offset` that ends the transaction of `producer_id` and `producer_epoch`.

    `kind` says whether the earlier records of the transaction are committed or aborted. `timestamp` is in ms.
    """

    kind: MarkerKind
    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def encode_control_batch(
    kind: MarkerKind,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return a control batch with one marker, which ends the open transaction of this producer id and epoch."""
    key, value = _KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, coordinator_epoch)
    batch = bytearray(
        encode_batch(
            [(timestamp_ms, key, value, ())],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )
    )
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=TRANSACTIONAL_BIT | CONTROL_BIT))
    seal(batch, 0, len(batch))
    return bytes(batch)


def decode_control_batch(batch: Buffer, position: int = 0) -> TransactionMarker | None:
    """Return the marker in the control batch at `position`.

    None means that its record is of another type, or that compaction has removed the record. Raises ValueError if the
    header is not that of a control batch, CorruptMessageError if the marker is incomplete or not the only record, and
    the errors of `decode_records`.
    """
    header = read_header(batch, position)
    if not header.is_control:
        raise ValueError(f"the batch at offset {header.base_offset} holds records of users")
    records = decode_records(batch, position)
    if not records:
        return None
    if len(records) > 1:
        raise CorruptMessageError(f"a control batch of {len(records)} records")
    [(offset, timestamp, key, value, _)] = records
    if len(key or b"") < _KEY.size:
        raise CorruptMessageError(f"a control record with the key {key!r}")
    _, kind = _KEY.unpack_from(key or b"")
    if kind not in list(MarkerKind):
        return None
    if len(value or b"") < _VALUE.size:
        raise CorruptMessageError(f"a transaction's marker with the value {value!r}")
    _, coordinator_epoch = _VALUE.unpack_from(value or b"")
    return TransactionMarker(
        MarkerKind(kind), offset, timestamp, header.producer_id, header.producer_epoch, coordinator_epoch
    )
