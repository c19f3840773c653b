"""What the log knows of its producers, so that a repeated batch is recognised and a missing one is noticed.

Per producer id: its epoch and its last five batches. `<offset>.snapshot` holds the state just before an offset:

    byte  field               type
    0     version             int16   1
    2     crc                 uint32  CRC-32C from byte 6 to the end
    6     number of entries   int32
    then 46 bytes for each producer:
    0     producer id         int64
    8     producer epoch      int16
    10    last sequence       int32   of the last record
    14    last offset         int64   of the last record
    22    offset delta        int32   last offset − first offset of the last batch
    26    timestamp           int64   ms, the largest of the last batch
    34    coordinator epoch   int32   −1
    38    first offset of the open transaction  int64  −1

The snapshot keeps one batch of each producer; the other four come back from the batches after it. Snapshots are not
synced: one that a crash damaged fails its CRC, is removed, and an earlier one and more batches are read instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from storage.file_names import SNAPSHOT_SUFFIX, file_name, offsets_named
from storage.files import Files
from tidelog.errors import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidRecordError,
    OutOfOrderSequenceError,
)
from tidelog.records import BatchHeader

BATCHES_KEPT = 5

_VERSION = 1
_PREFIX = Struct(">hIi")
_CRC_COVERS_FROM = 6
_ENTRY = Struct(">qhiqiqiq")
_SEQUENCES = 2**31
_NONE = -1


class ProducedBatch(NamedTuple):
    """One batch of a producer where it stands in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES


class Producer:
    """The epoch (−1 before the first batch) and the last batches of one producer id, oldest first."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int, batches: Iterable[ProducedBatch] = ()) -> None:
        self.epoch = epoch
        self.batches: deque[ProducedBatch] = deque(batches, maxlen=BATCHES_KEPT)


class ProducerState:
    """All producers of one log, up to `offset` (exclusive)."""

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch in the log that this one repeats."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in reversed(producer.batches):
            if batch.last_sequence == header.last_sequence and batch.offset_delta == header.last_offset_delta:
                return batch
        return None

    def check(self, header: BatchHeader) -> None:
        """Whether a new batch from a producer may follow what is there.

        A: an older epoch than the last one → InvalidProducerEpochError.
        B: a new epoch that does not begin with sequence 0 → OutOfOrderSequenceError.
        C: the next sequence: fine. So is any sequence of a producer that the log does not know (it may have
           forgotten it).
        D: a sequence before the last one, but not among the batches that are remembered → DuplicateSequenceError.
        E: a later sequence: batches are missing → OutOfOrderSequenceError.
        """
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidRecordError(f"producer {header.producer_id} sends a batch without an epoch or a sequence")
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, a newer one has {producer.epoch}"
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequenceError(
                    f"epoch {header.producer_epoch} of producer {header.producer_id} begins with sequence "
                    f"{header.base_sequence}, not 0"
                )
            return
        if not producer.batches:
            return
        last = producer.batches[-1].last_sequence
        if header.base_sequence == (last + 1) % _SEQUENCES:
            return
        # Sequences wrap, so "before" is the shorter way round.
        if (last - header.last_sequence) % _SEQUENCES < _SEQUENCES // 2:
            raise DuplicateSequenceError(
                f"producer {header.producer_id} repeats sequence {header.base_sequence}, which came long before {last}"
            )
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} sends sequence {header.base_sequence} after {last}"
        )

    def update(self, header: BatchHeader) -> None:
        """Takes note of a batch that is in the log, whoever put it there."""
        if header.producer_id < 0 or header.is_control:
            return
        batch = ProducedBatch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            self.producers[header.producer_id] = Producer(header.producer_epoch, (batch,))
        else:
            producer.batches.append(batch)

    def to_snapshot(self) -> bytes:
        """The bytes of a `.snapshot` file."""
        body = bytearray()
        for producer_id, producer in self.producers.items():
            last = producer.batches[-1] if producer.batches else ProducedBatch(_NONE, _NONE, 0, _NONE)
            body += _ENTRY.pack(producer_id, producer.epoch, *last, _NONE, _NONE)
        data = bytearray(_PREFIX.pack(_VERSION, 0, len(self.producers)) + body)
        _PREFIX.pack_into(data, 0, _VERSION, crc32c(data[_CRC_COVERS_FROM:]), len(self.producers))
        return bytes(data)

    @classmethod
    def from_snapshot(cls, data: bytes) -> ProducerState | None:
        """None where the bytes are not a whole snapshot."""
        if len(data) < _PREFIX.size:
            return None
        version, crc, count = _PREFIX.unpack_from(data)
        if (
            version != _VERSION
            or crc != crc32c(data[_CRC_COVERS_FROM:])
            or len(data) != _PREFIX.size + count * _ENTRY.size
        ):
            return None
        state = cls()
        for producer_id, epoch, sequence, offset, delta, timestamp, _, _ in _ENTRY.iter_unpack(data[_PREFIX.size :]):
            batches = (ProducedBatch(sequence, offset, delta, timestamp),) if sequence >= 0 else ()
            state.producers[producer_id] = Producer(epoch, batches)
        return state


class Snapshots:
    """The `.snapshot` files of one log, named like segments by the offset that they stand before."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files

    def offsets(self) -> list[int]:
        """Increasing."""
        return offsets_named(self._files.names(self._directory), SNAPSHOT_SUFFIX)

    def write(self, offset: int, state: ProducerState) -> None:
        self._files.replace(self._path(offset), state.to_snapshot(), sync=False)

    def latest(self, end_offset: int) -> tuple[int, ProducerState] | None:
        """The newest that does not lie past `end_offset`; those past it and damaged ones are removed."""
        for offset in reversed(self.offsets()):
            data = self._files.read(self._path(offset)) if offset <= end_offset else None
            state = ProducerState.from_snapshot(data) if data is not None else None
            if state is not None:
                return offset, state
            self._files.remove(self._path(offset))
        return None

    def keep_only(self, offsets: Iterable[int]) -> None:
        """Removes all others."""
        for offset in set(self.offsets()) - set(offsets):
            self._files.remove(self._path(offset))

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)
