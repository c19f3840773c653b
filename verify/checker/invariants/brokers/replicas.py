"""I15 and I16: in the end all replicas are the same, byte for byte, and their leader epochs rise along the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import le

from tidelog.history.columns import Column, consecutive
from tidelog.model import TopicPartition
from verify.checker.findings import record_name
from verify.checker.invariant import Ending, Invariant
from verify.checker.logs import READ, EpochStart, FinalLog, StoredBatch


class SameReplicas(Invariant):
    """I15: after quiescence all replicas end at one offset and have the same batches from the latest log start on.

    Of a batch that one of them has not whole, and where batches are not known, the records are compared. Compaction
    runs on each replica when it likes: of a compacted topic the same record stands at each offset that two have.

    Since only what lies behind all log starts can be compared, no log starts later than anybody has asked to trim to.
    """

    key, name = "I15", "replicas are the same"

    def conclude(self, ending: Ending) -> None:
        for tp in ending.logs:
            replicas = ending.replicas(tp)
            for log in replicas:
                self._begins_where_it_may(log)
            if len(replicas) < 2:
                continue
            first = max(replicas, key=lambda log: (log.leo, -int(log.broker) if log.broker.isdecimal() else 0))
            start = max(log.log_start for log in replicas)
            for other in replicas:
                if other is not first:
                    self._compare(tp, first, other, start, tp.topic in ending.compacted)

    def _begins_where_it_may(self, log: FinalLog) -> None:
        trimmed_to = self.facts.of(log.tp).trimmed_to
        if log.log_start > trimmed_to:
            says = f"{log.name} begins at {log.log_start}, and nobody had asked to trim further than {trimmed_to}"
            self.violated(log.tp, 0, says, str(log))

    def _compare(self, tp: TopicPartition, one: FinalLog, other: FinalLog, start: int, compacted: bool) -> None:
        left, right = (_Part.of(log, start, min(one.leo, other.leo)) for log in (one, other))
        proof = (str(one), str(other))
        if one.leo != other.leo:
            says = f"{other.name} ends at {other.leo}, {one.name} at {one.leo}"
            self.violated(tp, 0, says, *proof)
        if compacted:
            self.tally.observations += len(set(left.offsets).intersection(right.offsets))
            difference = _different_records(left, right)
        else:
            self.tally.observations += len(left.offsets)
            difference = _difference(left, right)
        if difference:
            self.violated(tp, 0, f"{one.name} and {other.name} differ: {difference}", *proof)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a replica has between two offsets; of the batches, those that lie there whole."""

    offsets: Column
    ids: Column
    ts: Column
    leader_epochs: Column
    batches: Sequence[StoredBatch]

    @classmethod
    def of(cls, log: FinalLog, start: int, end: int) -> _Part:
        part = slice(bisect_left(log.offsets, start), bisect_left(log.offsets, end))
        first = bisect_left(log.batches, start, key=lambda batch: batch.base)
        batches = log.batches[first : bisect_left(log.batches, end, key=lambda batch: batch.last)]
        columns = consecutive(log.offsets[part]), log.ids[part], log.ts[part], log.leader_epochs[part]
        return cls(*columns, batches)

    @property
    def records(self) -> tuple[Column, ...]:
        return self.offsets, self.ids, self.ts, self.leader_epochs


def _difference(left: _Part, right: _Part) -> str:
    if left.batches and right.batches and left.batches != right.batches:
        both = zip([*left.batches, None], [*right.batches, None], strict=False)
        ours, theirs = next(((a, b) for a, b in both if a != b), (None, None))
        return f"{_batch(ours)} and {_batch(theirs)}"
    if left.records == right.records:
        return ""
    return _different_records(left, right) or f"{len(left.offsets)} and {len(right.offsets)} records"


def _batch(batch: StoredBatch | None) -> str:
    return "nothing" if batch is None else f"batch {batch.base}–{batch.last} with CRC {batch.crc:#x}"


def _different_records(left: _Part, right: _Part) -> str:
    """The first offset that both have, with other records; empty where there is none."""
    there = {offset: record for offset, *record in zip(*right.records, strict=True)}
    for offset, *ours in zip(*left.records, strict=True):
        theirs = there.get(offset, ours)
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
