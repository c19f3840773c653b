"""Check I15 and I16: at the end all replicas are identical, byte for byte, and leader epochs increase along the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import le

from tidelog.history.columns import Column, consecutive
from tidelog.model import TopicPartition
from verify.checker.findings import record_name
from verify.checker.inputs.logs import READ, EpochStart, FinalLog, StoredBatch
from verify.checker.invariant import Ending, Invariant


class SameReplicas(Invariant):
    """Check I15: at the end all replicas have the same end offset, and the same records from the latest log start on.

    Batches are compared too, by their CRCs, if both logs have batches that are completely above that start. In a
    compacted topic, only records are compared, at the offsets that both replicas have, because replicas compact
    independently. Because only records above all log starts can be compared, no log may start above the highest trim
    request.
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
            says = f"{log.name} begins at {log.log_start}, but the highest trim request was {trimmed_to}"
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
    """The records of a replica between two offsets, and the batches that are completely inside."""

    offsets: Column
    ids: Column
    ts: Column
    leader_epochs: Column
    batches: Sequence[StoredBatch]

    @classmethod
    def of(cls, log: FinalLog, start: int, end: int) -> _Part:
        """Return the records at offsets from `start` to before `end`, and the batches that are completely inside."""
        part = slice(bisect_left(log.offsets, start), bisect_left(log.offsets, end))
        first = bisect_left(log.batches, start, key=lambda batch: batch.base)
        batches = log.batches[first : bisect_left(log.batches, end, key=lambda batch: batch.last)]
        columns = consecutive(log.offsets[part]), log.ids[part], log.ts[part], log.leader_epochs[part]
        return cls(*columns, batches)

    @property
    def records(self) -> tuple[Column, ...]:
        return self.offsets, self.ids, self.ts, self.leader_epochs


def _difference(left: _Part, right: _Part) -> str:
    """Return the first difference in words: of batches if both sides have some that differ, otherwise of records; an
    empty text if none.
    """
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
    """Return in words the first offset at which both have different records, or an empty text.

    Offsets that only one of them has are ignored.
    """
    there = {offset: record for offset, *record in zip(*right.records, strict=True)}
    for offset, *ours in zip(*left.records, strict=True):
        theirs = there.get(offset, ours)
        if ours != theirs:
            shown = (f"{record_name(each[0])} of {each[1]} ms in epoch {each[2]}" for each in (ours, theirs))
            return f"at offset {offset} " + " and ".join(shown)
    return ""


class EpochsRise(Invariant):
    """Check I16: leader epochs never decrease along a log, and each replica's checkpoint has their start offsets.

    A replica with records must have a checkpoint. The checkpoint must have no entry above the log end, because such an
    entry is left over from truncated records. In a compacted topic, records may begin above their epoch's start offset.
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
                self.violated(tp, 0, f"{log.name} has records but no leader epoch checkpoint", str(log))
            return
        derived, checkpoint = _starts(log), _clamped(log.epochs, log)
        entries = f"{log.name}'s checkpoint has {[tuple(each) for each in log.epochs]}"
        if log.epochs and log.epochs[-1].start_offset > log.leo:
            self.violated(tp, 0, f"{entries}, but its log ends at {log.leo}", str(log))
            return
        if compacted:
            # Compaction may have removed an epoch's first records.
            fits = all(_epoch_at(checkpoint, offset) == epoch for epoch, offset in derived)
        else:
            fits = derived == checkpoint
        if not fits:
            self.violated(tp, 0, f"{entries}, but its log has {[tuple(each) for each in derived]}", str(log))


def _starts(log: FinalLog) -> list[EpochStart]:
    """Return each epoch with the offset of its first record. The epochs never decrease."""
    found, place = [], 0
    while place < len(log.leader_epochs):
        epoch = log.leader_epochs[place]
        found.append(EpochStart(epoch, log.offsets[place]))
        place = bisect_right(log.leader_epochs, epoch, lo=place)
    return found


def _clamped(epochs: Sequence[EpochStart], log: FinalLog) -> list[EpochStart]:
    """Return the checkpoint's entries for existing records, because a leader adds its epoch before it has records of
    it.

    An entry that begins below the first record begins with that record instead.
    """
    first = log.offsets[0] if log.offsets else log.leo
    entries = [each for each in epochs if each.start_offset < log.leo]
    return [
        EpochStart(epoch, max(start, first))
        for (epoch, start), following in zip_longest(entries, entries[1:])
        if following is None or following.start_offset > first
    ]


def _epoch_at(epochs: Sequence[EpochStart], offset: int) -> int:
    """Return the leader epoch of an offset by these entries, or −1 if the offset is below all of them."""
    place = bisect_right(epochs, offset, key=lambda each: each.start_offset)
    return epochs[place - 1].epoch if place else -1
