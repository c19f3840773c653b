"""Export the logs of replicas from their files in the checker's format (`verify.checker.inputs.logs`).

    python -P -m verify.checker.inputs.export_logs BROKER OUT LOG_DIR… --topic TOPIC…

Each log of the topics becomes OUT/final/BROKER/TOPIC-PARTITION.jsonl. The files are only read; the caller must ensure
that their broker is idle or stopped. Damage is preserved: the records of a batch with a wrong CRC get the id −1, and
bytes that are no batch end the segment.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, read_offsets
from storage.file_names import LOG_SUFFIX, offset_of, offsets_named
from storage.files import RealFiles
from storage.inspection.batches import Batch, walk
from storage.inspection.damaged_file_reader import DamagedFileReader
from storage.inspection.findings import Damage
from storage.log.leader_epochs import LeaderEpochs
from storage.log_names import partition_named
from tidelog.cli.commands import Command
from tidelog.errors import TidelogError
from tidelog.history.columns import DAMAGED
from tidelog.model import TopicPartition
from tidelog.records.decode import decode_columns
from tidelog.records.header import BatchHeader, validate_batch
from verify.chaos.payload import id_of
from verify.checker.inputs.logs import EpochStart, FinalLog, StoredBatch, write_final_log


@dataclass(slots=True)
class Columns:
    """The records of a log's batches as columns in the checker's format."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("q"))
    ts: array[int] = field(default_factory=lambda: array("q"))
    epochs: array[int] = field(default_factory=lambda: array("q"))
    batches: list[StoredBatch] = field(default_factory=list)

    def add(self, data: memoryview, header: BatchHeader) -> None:
        """Add one complete batch; of a control batch only its extent and CRC, not its records.

        A record gets the id −1 if its batch is damaged, or if its value contains no id.
        """
        self.batches.append(StoredBatch(header.base_offset, header.last_offset, zlib.crc32(data)))
        if header.is_control:
            return
        offsets, ids, ts = _records(data, header)
        self.offsets.extend(offsets)
        self.ids.extend(ids)
        self.ts.extend(ts)
        self.epochs.extend([header.partition_leader_epoch] * (len(self.offsets) - len(self.epochs)))

    def log(
        self, broker: str, tp: TopicPartition, begin: int, end: int, hw: int, epochs: Sequence[EpochStart] | None
    ) -> FinalLog:
        """Return the log without records, and without whole batches, below the log start `begin`, which no client
        receives.
        """
        skipped = sum(offset < begin for offset in self.offsets)
        offsets, ids = self.offsets[skipped:], self.ids[skipped:]
        ts, leader_epochs = self.ts[skipped:], self.epochs[skipped:]
        batches = [batch for batch in self.batches if batch.last >= begin]
        return FinalLog(broker, tp, begin, end, hw, epochs, offsets, ids, ts, leader_epochs, batches)


def _records(data: memoryview, header: BatchHeader) -> tuple[Iterable[int], Iterable[int], Iterable[int]]:
    try:
        validate_batch(data, 0, header)
        columns = decode_columns(data)
    except TidelogError:
        offsets = range(header.base_offset, header.next_offset)
        return offsets, [DAMAGED] * len(offsets), [header.max_timestamp] * len(offsets)
    ids = (DAMAGED if (found := id_of(value)) is None else found for value in columns.values)
    return columns.offsets, ids, columns.timestamps


def read_replica(
    directory: Path, broker: str, tp: TopicPartition, *, log_start: int | None = None, hw: int = -1
) -> FinalLog:
    """Return the log that the files in this directory hold. Each segment is read up to the first bytes that are no
    complete batch.

    `log_start` is the checkpointed value, if any; the log begins there or with its first file, whichever is later. The
    log ends after the last batch, or at the base offset of the last segment if that is later. `hw` is the high
    watermark to note, −1 if unknown. Raise OSError if a file cannot be read.
    """
    columns, end = Columns(), 0
    segments = offsets_named((path.name for path in directory.iterdir()), LOG_SUFFIX)
    for path in sorted(path for path in directory.glob(f"*{LOG_SUFFIX}") if offset_of(path.stem) is not None):
        with DamagedFileReader(path) as source:
            for batch in _whole(walk(source)):
                columns.add(source.read(batch.position, batch.header.size_bytes), batch.header)
                end = max(end, batch.header.next_offset)
    begin = max(log_start or 0, segments[0] if segments else 0)
    noted = LeaderEpochs.load(directory, RealFiles())
    epochs = None if noted is None else [EpochStart(each.epoch, each.start_offset) for each in noted.entries()]
    end = max(end, segments[-1] if segments else 0)
    return columns.log(broker, tp, begin, end, hw, epochs)


def _whole(found: Iterator[Batch | Damage]) -> Iterator[Batch]:
    """Yield the batches before the first damage."""
    for each in found:
        if isinstance(each, Damage):
            return
        yield each


def write_replicas(broker: str, out: Path, log_dirs: Sequence[Path], topics: Container[str]) -> list[Path]:
    """Write a broker's logs of these topics to OUT/final/BROKER, and return the paths of the written files.

    Log starts and high watermarks come from each log directory's checkpoints. Raise OSError if a file cannot be read or
    written.
    """
    written = []
    for log_dir in log_dirs:
        starts, marks = (read_offsets(RealFiles(), log_dir / name) for name in (LOG_STARTS, HIGH_WATERMARKS))
        for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
            if (tp := partition_named(directory.name)) is not None and tp.topic in topics:
                log = read_replica(directory, broker, tp, log_start=starts.get(tp), hw=marks.get(tp, -1))
                written.append(write_final_log(out, log))
    return written


@click.command(cls=Command)
@click.argument("broker")
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("log_dirs", metavar="LOG_DIR…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--topic", "topics", multiple=True, required=True, help="A topic whose logs are exported; may be repeated."
)
def main(broker: str, out: Path, log_dirs: tuple[Path, ...], topics: tuple[str, ...]) -> None:
    """Export the logs of a broker's replicas for the checker."""
    try:
        for path in write_replicas(broker, out, log_dirs, topics):
            print(path)
    except OSError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
