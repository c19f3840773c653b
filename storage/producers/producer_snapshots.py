"""`<offset>.snapshot`: the state of the producers just before an offset, in Kafka's format.

    byte  field               type
    0     version             int16   1
    2     crc                 uint32  CRC-32C from byte 6 to the end
    6     number of entries   int32
    then 46 bytes for each producer:
    0     producer id         int64
    8     producer epoch      int16
    10    last sequence       int32   of the last record; −1 if no batch is known
    14    last offset         int64   of the last record; −1 if no batch is known
    22    offset delta        int32   last offset − first offset of the last batch
    26    timestamp           int64   ms, the largest of the last batch or marker
    34    coordinator epoch   int32   of the last marker of a transaction; −1: none
    38    first offset of the open transaction  int64  −1: none

A snapshot is written when a segment is rolled, with the name of the new segment, and at the log end when the log is
closed. A snapshot holds one batch of each producer; a restart remembers this one and those after the snapshot.
Snapshots of a roll are not flushed. If a crash damages one, its CRC does not match; it is removed, and an earlier
snapshot and more batches are read instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from storage.file_names import SNAPSHOT_SUFFIX, file_name, offsets_named
from storage.files import Files
from storage.producers.producer_state import NONE, BatchMetadata, Producer, ProducerState

VERSION = 1
PREFIX = Struct(">hIi")
CRC_COVERS_FROM = 6
ENTRY = Struct(">qhiqiqiq")


def encode_snapshot(state: ProducerState) -> bytes:
    """Return the bytes of a `.snapshot` file."""
    body = bytearray()
    for producer_id, producer in state.producers.items():
        last = producer.batches[-1] if producer.batches else BatchMetadata(NONE, NONE, 0, NONE)
        body += ENTRY.pack(
            producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            producer.timestamp,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
    data = bytearray(PREFIX.pack(VERSION, 0, len(state.producers)) + body)
    PREFIX.pack_into(data, 0, VERSION, crc32c(data[CRC_COVERS_FROM:]), len(state.producers))
    return bytes(data)


def decode_snapshot(data: bytes) -> ProducerState | None:
    """Return the state in a snapshot; None if the bytes are not a valid snapshot."""
    if len(data) < PREFIX.size:
        return None
    version, crc, count = PREFIX.unpack_from(data)
    if version != VERSION or crc != crc32c(data[CRC_COVERS_FROM:]) or len(data) != PREFIX.size + count * ENTRY.size:
        return None
    state = ProducerState()
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start in ENTRY.iter_unpack(
        data[PREFIX.size :]
    ):
        batches = (BatchMetadata(sequence, offset, delta, timestamp),) if offset >= 0 else ()
        state.producers[producer_id] = Producer(epoch, batches, timestamp, coordinator_epoch, start)
    return state


class ProducerSnapshots:
    """The `.snapshot` files of one log: at most one for each segment, and one at the log end.

    The object keeps the offsets in memory, because no other code writes or removes these files of an open log.

    names   the names in the directory when the log is opened
    """

    def __init__(self, directory: Path, files: Files, names: Iterable[str]) -> None:
        self._directory = directory
        self._files = files
        self._offsets = tuple(offsets_named(names, SNAPSHOT_SUFFIX))

    def continue_in(self, directory: Path) -> None:
        """Use the files in this directory from now on, because the directory of the log gets this name."""
        self._directory = directory

    def offsets(self) -> tuple[int, ...]:
        """Return the offsets of the snapshots, increasing."""
        return self._offsets

    def write(self, offset: int, state: ProducerState, *, fsync: bool = False) -> None:
        self._files.replace(self._path(offset), encode_snapshot(state), fsync=fsync)
        self._offsets = tuple(sorted({*self._offsets, offset}))

    def flush(self, offset: int) -> None:
        """Flush a snapshot, and its name, that was written without a flush."""
        self._files.open(self._path(offset), create=False).fsync()
        self._files.fsync_directory(self._directory)

    def rewrite(self) -> None:
        """Write each file again, unchanged and without a flush, so that the next flush has something to write.

        A flush writes nothing that an earlier, failed flush dropped.
        """
        for offset in self.offsets():
            data = self._files.read(self._path(offset))
            if data is not None:
                self._files.replace(self._path(offset), data, fsync=False)

    def remove_past(self, end_offset: int) -> None:
        """Remove the snapshots at offsets past `end_offset`, because they describe removed batches."""
        self.keep_only([offset for offset in self.offsets() if offset <= end_offset])

    def latest(self, end_offset: int) -> tuple[int, ProducerState] | None:
        """Return (offset, state) of the newest valid snapshot at or before `end_offset`; None if there is none.

        Later snapshots, and damaged ones that are newer than the result, are removed.
        """
        self.remove_past(end_offset)
        for offset in reversed(self.offsets()):
            data = self._files.read(self._path(offset))
            state = decode_snapshot(data) if data is not None else None
            if state is not None:
                return offset, state
            self._remove(offset)
        return None

    def keep_only(self, offsets: Iterable[int]) -> None:
        """Remove all snapshots at other offsets."""
        for offset in set(self._offsets).difference(offsets):
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        self._files.remove(self._path(offset))
        self._offsets = tuple(each for each in self._offsets if each != offset)

    def _path(self, offset: int) -> Path:
        return self._directory / file_name(offset, SNAPSHOT_SUFFIX)
