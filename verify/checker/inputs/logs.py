"""Read and write the final logs: each replica's log after healing, and the leader's log as a client read it.

    DIR/final/BROKER/TOPIC-PARTITION.jsonl     of each broker, from its files
    DIR/final/read/TOPIC-PARTITION.jsonl       the leader's, through a client

A header line is followed by any number of lines with columns in the order of offsets. Logs from files also have
batches:

    {"final":1,"broker":1,"tp":["t",0],"log_start":0,"leo":3,"hw":3,"epochs":[[1,0],[2,2]]}
    {"offset":0,"ids":[1,2,3],"ts":[5,6,7],"epochs":[1,1,2]}
    {"batches":[[0,1,2774135],[2,2,998127]]}
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.errors import HistoryError
from tidelog.history.columns import Column, as_array, column, consecutive
from tidelog.history.history_files import SUFFIX, complete_lines, json_object, line_errors
from tidelog.history.json_lines import to_line, topic_partition
from tidelog.model import TopicPartition

DIRECTORY: Final = "final"
#: The name, in place of a broker, of the log that a client read.
READ: Final = "read"
VERSION: Final = 1


class EpochStart(NamedTuple):
    """The first offset of a leader epoch, from an epoch checkpoint."""

    epoch: int
    start_offset: int


class StoredBatch(NamedTuple):
    """The first and last offset of a batch, and a CRC of all its bytes including the header."""

    base: int
    last: int
    crc: int


@dataclass(slots=True)
class FinalLog:
    """One replica's log at the end of a run. The four columns have one element per record.

    broker          for example "1", or `READ` for the log that a client read
    log_start       the log start offset
    leo             the log end offset
    hw              the high watermark, −1 if unknown
    epochs          the leader epoch checkpoint, or None if there is none
    ids             the record ids; −1 for a record that is damaged or whose value contains no id
    ts              the timestamps (ms)
    leader_epochs   the leader epoch of each record's batch
    batches         empty if a client read the log
    """

    broker: str
    tp: TopicPartition
    log_start: int
    leo: int
    hw: int = -1
    epochs: Sequence[EpochStart] | None = None
    offsets: Column = field(default_factory=lambda: array("q"))
    ids: Column = field(default_factory=lambda: array("q"))
    ts: Column = field(default_factory=lambda: array("q"))
    leader_epochs: Column = field(default_factory=lambda: array("q"))
    batches: Sequence[StoredBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        lengths = {len(self.offsets), len(self.ids), len(self.ts), len(self.leader_epochs)}
        if len(lengths) > 1:
            raise ValueError(f"the columns of {self.tp} on {self.broker} have different lengths")
        self.offsets = consecutive(self.offsets)
        self.ids, self.ts, self.leader_epochs = as_array(self.ids), as_array(self.ts), as_array(self.leader_epochs)

    @property
    def name(self) -> str:
        return "the log read by a client" if self.broker == READ else f"broker {self.broker}'s log"

    def __str__(self) -> str:
        return f"{self.name} of {self.tp}: offsets {self.log_start}–{self.leo}, {len(self.ids)} records"

    def place(self, offset: int) -> int | None:
        """Return the index of an offset in the columns, or None if the log has no record at the offset."""
        if isinstance(self.offsets, range):
            place = offset - self.offsets.start
            return place if 0 <= place < len(self.offsets) else None
        place = bisect_left(self.offsets, offset)
        return place if place < len(self.offsets) and self.offsets[place] == offset else None

    def id_at(self, offset: int) -> int | None:
        """Return the id of the record at an offset, or None if there is no record."""
        place = self.place(offset)
        return None if place is None else self.ids[place]

    def has_the_same_records(self, other: FinalLog) -> bool:
        """Return whether both logs have the same ids at the same offsets."""
        return self.offsets == other.offsets and self.ids == other.ids

    def holds(self, offsets: Column, ids: Column, ts: Column | None = None) -> bool:
        """Return whether each of these records is at its offset, with its timestamp if timestamps are given.

        True without records.
        """
        if not ids:
            return True
        run = consecutive(offsets)
        if isinstance(self.offsets, range) and isinstance(run, range):
            part = slice(run.start - self.offsets.start, run.stop - self.offsets.start)
            same_times = ts is None or self.ts[part] == as_array(ts)
            return part.start >= 0 and self.ids[part] == as_array(ids) and same_times
        if isinstance(self.offsets, range) and self.offsets.start == 0 and ts is None and min(offsets) >= 0:
            return max(offsets) < len(self.offsets) and list(map(self.ids.__getitem__, offsets)) == list(ids)
        places = [self.place(offset) for offset in offsets]
        return all(
            place is not None and self.ids[place] == record_id and (ts is None or self.ts[place] == ts[index])
            for index, (place, record_id) in enumerate(zip(places, ids, strict=True))
        )


def write_final_log(directory: Path, log: FinalLog, *, records_per_line: int = 10_000) -> Path:
    """Write the log to DIRECTORY/final/BROKER atomically, replacing an earlier file, and return its path.

    Raise OSError if the file cannot be written.
    """
    path = directory / DIRECTORY / log.broker / f"{log.tp}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_suffix(".part")
    with begun.open("wb") as file:
        file.writelines(to_line(each) for each in _lines(log, records_per_line))
    os.replace(begun, path)
    return path


def _lines(log: FinalLog, records_per_line: int) -> Iterator[dict[str, Any]]:
    header = {"final": VERSION, "broker": log.broker, "tp": list(log.tp), "log_start": log.log_start, "leo": log.leo}
    header |= {"hw": log.hw, "records": len(log.offsets), "batches": len(log.batches)}
    yield header | ({} if log.epochs is None else {"epochs": [list(each) for each in log.epochs]})
    for start in range(0, len(log.offsets), records_per_line):
        part = slice(start, start + records_per_line)
        offsets = consecutive(log.offsets[part])
        line: dict[str, Any] = {"offset": offsets.start} if isinstance(offsets, range) else {"offsets": list(offsets)}
        yield line | {"ids": list(log.ids[part]), "ts": list(log.ts[part]), "epochs": list(log.leader_epochs[part])}
    for start in range(0, len(log.batches), records_per_line):
        yield {"batches": [list(each) for each in log.batches[start : start + records_per_line]]}


def read_final_logs(directory: Path) -> Iterator[FinalLog]:
    """Yield all final logs in a run's directory, those of one partition together, in the order of file names.

    The iteration raises the errors of `read_final_log`.
    """
    paths = sorted((directory / DIRECTORY).glob(f"*/*{SUFFIX}"), key=lambda path: (path.name, path))
    for _, replicas in groupby(paths, key=lambda path: path.name):
        known: dict[bytes, _Part] = {}
        for path in replicas:
            yield read_final_log(path, known)


def read_final_log(path: Path, known: dict[bytes, _Part] | None = None) -> FinalLog:
    """Read one replica's log at the end of a run.

    Raise HistoryError if the file is cut, its header is missing, or a complete line is invalid. Raise OSError if the
    file cannot be read. The header has the numbers of records and batches, because the file is written as a whole. If
    it has no such numbers, because an earlier version wrote it, an incomplete end is ignored.

    known   parsed lines of the other replicas, so that equal lines are not parsed again; new lines are added
    """
    known = {} if known is None else known
    offsets: array[int] | range = range(0)
    ids, ts, leader_epochs = array("q"), array("q"), array("q")
    batches: list[StoredBatch] = []
    header: FinalLog | None = None
    counts: tuple[int, int] | None = None
    for number, raw in complete_lines(path):
        with line_errors(path, number):
            if header is None:
                fields = json_object(raw)
                header = _header(fields)
                counts = (fields["records"], fields["batches"]) if "records" in fields else None
                continue
            part = known.get(raw)
            if part is None:
                part = known[raw] = _part(json_object(raw))
        offsets = _joined(offsets, part.offsets)
        ids += part.ids
        ts += part.ts
        leader_epochs += part.leader_epochs
        batches += part.batches
    if header is None or (counts is not None and counts != (len(ids), len(batches))):
        raise HistoryError(f"{path}:{number}: the file is truncated")
    header.offsets = offsets
    header.ids, header.ts, header.leader_epochs, header.batches = ids, ts, leader_epochs, batches
    return header


class _Part(NamedTuple):
    """The parsed contents of a line after the header."""

    offsets: array[int] | range = range(0)
    ids: array[int] = array("q")
    ts: array[int] = array("q")
    leader_epochs: array[int] = array("q")
    batches: Sequence[StoredBatch] = ()


def _part(line: Any) -> _Part:
    if "batches" in line:
        return _Part(batches=[StoredBatch(*column(each)) for each in line["batches"]])
    columns = column(line["ids"]), column(line["ts"]), column(line["epochs"])
    offsets = _offsets(line, len(columns[0]))
    if len({len(offsets), *(len(each) for each in columns)}) > 1:
        raise ValueError("the columns have different lengths")
    return _Part(offsets, *columns)


def _offsets(line: Any, count: int) -> array[int] | range:
    if "offset" not in line:
        return column(line["offsets"])
    (first,) = _ints([line["offset"]])
    return range(first, first + count)


def _joined(offsets: array[int] | range, more: array[int] | range) -> array[int] | range:
    """Return `more` appended to the offsets: a range if both are ranges and `more` continues the first, else an array.

    If one of the two is empty, return the other one.
    """
    if not more:
        return offsets
    if not offsets:
        return more
    if isinstance(offsets, range) and isinstance(more, range) and more.start == offsets.stop:
        return range(offsets.start, more.stop)
    return array("q", offsets) + array("q", more)


def _ints(values: Any) -> list[int]:
    if type(values) is not list or any(type(each) is not int for each in values):
        raise TypeError("must be a list of integers")
    return values


def _header(line: Any) -> FinalLog:
    if line.get("final") != VERSION:
        raise ValueError("the file does not begin with the header of a final log")
    epochs = line.get("epochs")
    starts = None if epochs is None else [EpochStart(*column(each)) for each in epochs]
    log_start, leo, hw = column([line["log_start"], line["leo"], line.get("hw", -1)])
    return FinalLog(str(line["broker"]), topic_partition(line["tp"]), log_start, leo, hw, starts)
