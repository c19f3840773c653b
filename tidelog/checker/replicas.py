"""I15 and I16: in the end all replicas are the same, byte for byte, and their leader epochs rise along the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import zip_longest
from operator import le

from tidelog.checker.findings import record_name
from tidelog.checker.invariant import Ending, Invariant
from tidelog.checker.logs import READ, EpochStart, FinalLog, StoredBatch
from tidelog.model import TopicPartition


class SameReplicas(Invariant):
    """I15: after quiescence all replicas end at one offset and have the same batches from the latest log start on.

    Where the batches are not known their records are compared. Compaction runs on each replica when it likes: of a
    compacted topic the same record stands at each offset that two replicas have.
    """

    key, name = "I15", "replicas are the same"

    def conclude(self, ending: Ending) -> None:
        for tp in ending.logs:
            replicas = ending.replicas(tp)
            if len(replicas) < 2:
                continue
            first = max(replicas, key=lambda log: (log.leo, -int(log.broker) if log.broker.isdecimal() else 0))
            start = max(log.log_start for log in replicas)
            for other in replicas:
                if other is not first:
                    self._compare(tp, first, other, start, tp.topic in ending.compacted)

    def _compare(self, tp: TopicPartition, one: FinalLog, other: FinalLog, start: int, compacted: bool) -> None:
        self.tally.observations += len(one.ids)
        proof = (str(one), str(other))
        if one.leo != other.leo:
            says = f"{other.name} ends at {other.leo}, {one.name} at {one.leo}"
            self.violated(tp, 0, says, *proof)
        difference = _different_records(one, other, start) if compacted else _difference(one, other, start)
        if difference:
            self.violated(tp, 0, f"{one.name} and {other.name} differ: {difference}", *proof)


def _difference(one: FinalLog, other: FinalLog, start: int) -> str:
    end = min(one.leo, other.leo)
    if one.batches and other.batches:
        left, right = (_between(log.batches, start, end) for log in (one, other))
        if left == right:
            return ""
        ours, theirs = next(
            ((a, b) for a, b in zip([*left, None], [*right, None], strict=False) if a != b), (None, None)
        )
        return f"{_batch(ours)} and {_batch(theirs)}"
    left_records, right_records = (_records(log, start, end) for log in (one, other))
    if left_records == right_records:
        return ""
    return _different_records(one, other, start) or f"{len(left_records[0])} and {len(right_records[0])} records"


def _between(batches: Sequence[StoredBatch], start: int, end: int) -> Sequence[StoredBatch]:
    """Those that lie in it whole: at both ends a batch may be cut off in one replica."""
    first = bisect_left(batches, start, key=lambda batch: batch.base)
    return batches[first : bisect_left(batches, end, key=lambda batch: batch.last)]


def _records(log: FinalLog, start: int, end: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    part = slice(bisect_left(log.offsets, start), bisect_left(log.offsets, end))
    return log.ids[part], log.ts[part], log.leader_epochs[part]


def _batch(batch: StoredBatch | None) -> str:
    return "nothing" if batch is None else f"batch {batch.base}–{batch.last} with CRC {batch.crc:#x}"


def _different_records(one: FinalLog, other: FinalLog, start: int) -> str:
    """The first offset that both have, with other records; empty where there is none."""
    for place in range(bisect_left(one.offsets, start), len(one.offsets)):
        offset = one.offsets[place]
        found = other.place(offset)
        if found is None:
            continue
        ours = one.ids[place], one.ts[place], one.leader_epochs[place]
        theirs = other.ids[found], other.ts[found], other.leader_epochs[found]
        if ours != theirs:
            shown = (f"{record_name(each[0])} of {each[1]} ms in epoch {each[2]}" for each in (ours, theirs))
            return f"at offset {offset} " + " and ".join(shown)
    return ""


class EpochsRise(Invariant):
    """I16: leader epochs never fall along a log, and each replica's checkpoint says where they begin in the log.

    Nor does it say anything of what is behind the log's end: that is left over from records that were cut.
    """

    key, name = "I16", "epochs rise along the log"

    def conclude(self, ending: Ending) -> None:
        for tp, logs in ending.logs.items():
            for log in logs:
                self._judge(tp, log, tp.topic in ending.compacted)

    def _judge(self, tp: TopicPartition, log: FinalLog, compacted: bool) -> None:
        epochs = log.leader_epochs
        self.tally.observations += len(epochs)
        if not all(map(le, epochs, epochs[1:])):
            place = next(place for place in range(1, len(epochs)) if epochs[place - 1] > epochs[place])
            says = (
                f"{log.name} has epoch {epochs[place - 1]} at offset {log.offsets[place - 1]}"
                f" and epoch {epochs[place]} at {log.offsets[place]}"
            )
            self.violated(tp, 0, says, str(log))
            return
        if log.epochs is None:
            if log.broker != READ and log.ids:
                self.violated(tp, 0, f"{log.name} has records, and no checkpoint that says of which epochs", str(log))
            return
        derived, checkpoint = _starts(log), _clamped(log.epochs, log)
        told = f"{log.name}'s checkpoint has {[tuple(each) for each in log.epochs]}"
        if log.epochs and log.epochs[-1].start_offset > log.leo:
            self.violated(tp, 0, f"{told}, and its log ends at {log.leo}", str(log))
            return
        if compacted:
            # Compaction may have taken an epoch's first records.
            fits = all(_epoch_at(checkpoint, offset) == epoch for epoch, offset in derived)
        else:
            fits = derived == checkpoint
        if not fits:
            self.violated(tp, 0, f"{told}, and its log {[tuple(each) for each in derived]}", str(log))


def _starts(log: FinalLog) -> list[EpochStart]:
    """Each epoch with its first record's offset; epochs never fall."""
    found, place = [], 0
    while place < len(log.leader_epochs):
        epoch = log.leader_epochs[place]
        found.append(EpochStart(epoch, log.offsets[place]))
        place = bisect_right(log.leader_epochs, epoch, lo=place)
    return found


def _clamped(epochs: Sequence[EpochStart], log: FinalLog) -> list[EpochStart]:
    """What a checkpoint says of the records that there are: a leader enters its epoch before it has any of its own."""
    first = log.offsets[0] if log.offsets else log.leo
    entries = [each for each in epochs if each.start_offset < log.leo]
    return [
        EpochStart(epoch, max(start, first))
        for (epoch, start), following in zip_longest(entries, entries[1:])
        if following is None or following.start_offset > first
    ]


def _epoch_at(epochs: Sequence[EpochStart], offset: int) -> int:
    place = bisect_right(epochs, offset, key=lambda each: each.start_offset)
    return epochs[place - 1].epoch if place else -1
