"""Check I7, I9 and I10: readers get every record, only records that last, and none above the high watermark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from tidelog.history.columns import Column, consecutive
from tidelog.history.group_operations import Assigned, CommitOk
from tidelog.history.operations import Read
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, PartitionFacts, Source, describe_read
from verify.checker.findings import record_name, seconds
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Handler, Invariant


class Contiguity(Invariant):
    """Check I7: within a session a consumer receives consecutive offsets, each once.

    A group misses nothing either: its members together received all records that are committed in its name, except
    trimmed ones. A committer that is not a member may commit any offset. Records missing from a compacted topic are no
    violation, and neither are records that were trimmed before they were reached.
    """

    key, name = "I7", "consumers miss nothing"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._last: dict[tuple[str, int, int, TopicPartition], tuple[int, Read]] = {}
        self._gaps: list[tuple[TopicPartition, int, int, str, tuple[str, ...]]] = []
        self._committed: dict[tuple[str, TopicPartition], CommitOk] = {}
        #: The names of all members that a group ever had.
        self._members: dict[str, set[str]] = defaultdict(set)

    def handlers(self) -> Mapping[type, Handler]:
        return {Read: self._read, CommitOk: self._commits, Assigned: self._joins}

    def _joins(self, source: Source, event: Assigned) -> None:
        self._members[event.group].add(source.name)

    def _commits(self, source: Source, event: CommitOk) -> None:
        if event.generation >= 0:
            self._members[event.group].add(source.name)
            last = self._committed.get((event.group, event.tp))
            if last is None or event.offset > last.offset:
                self._committed[event.group, event.tp] = event

    def _read(self, source: Source, event: Read) -> None:
        offsets = event.offsets
        if not offsets:
            return
        self.tally.observations += len(offsets)
        key = (source.name, source.life, event.session, event.tp)
        before = self._last.get(key)
        if before is not None and offsets[0] != before[0] + 1:
            self._broken(source, before[1], event, before[0], offsets[0])
        if not isinstance(offsets, range):
            for last, following in pairwise(offsets):
                if following != last + 1:
                    self._broken(source, event, event, last, following)
        self._last[key] = offsets[-1], event

    def _broken(self, source: Source, before: Read, event: Read, last: int, following: int) -> None:
        proof = (_shown(source, before, last), _shown(source, event, following))
        if following > last:
            says = f"{source.name} received offset {following} after {last} in one session"
            self._gaps.append((event.tp, following, event.t1, says, proof))
        elif not self.only_counted():
            says = f"{source.name} received offset {following} again after {last} in one session"
            self.violated(event.tp, event.t1, says, *proof)

    def examine(self) -> None:
        self._report_gaps(self.facts.compacted)

    def conclude(self, ending: Ending) -> None:
        self._report_gaps(ending.compacted)
        for commit in self._committed.values():
            if commit.tp.topic not in ending.compacted:
                self._covered(commit, self.facts.of(commit.tp))

    def _covered(self, commit: CommitOk, facts: PartitionFacts) -> None:
        begin, end = facts.trimmed_to, commit.offset
        self.tally.observations += max(0, end - begin)
        members = self._members[commit.group]
        spans = (span for source, read in facts.reads if source.name in members for span in _spans(read.offsets))
        unread = _first_outside(spans, begin, end)
        if unread is not None and not self.only_counted():
            says = f"{commit.group} committed {end}, but none of its members received offset {unread}"
            evidence = (
                f"commit of {commit.group}, generation {commit.generation}, {seconds(commit.t0)}–{seconds(commit.t1)}"
            )
            self.violated(commit.tp, commit.t1, says, evidence, f"members: {', '.join(sorted(members))}")

    def _report_gaps(self, compacted: frozenset[str]) -> None:
        gaps, self._gaps = self._gaps, []
        for tp, following, t, says, proof in gaps:
            # A reader below the log start continues at the start, without an error if its reset policy permits that.
            was_trimmed = any(following <= offset and asked < t for offset, asked, _ in self.facts.of(tp).trims)
            if tp.topic not in compacted and not was_trimmed and not self.only_counted():
                self.violated(tp, t, says, *proof)


def _spans(offsets: Column) -> Iterable[tuple[int, int]]:
    """Return the offsets as ranges (first, last + 1): one if they are consecutive, otherwise one for each offset."""
    run = consecutive(offsets)
    if isinstance(run, range):
        return [(run.start, run.stop)]
    return [(each, each + 1) for each in offsets]


def _first_outside(spans: Iterable[tuple[int, int]], begin: int, end: int) -> int | None:
    """Return the first offset at or after `begin` and before `end` that is in none of the ranges, or None."""
    for start, stop in sorted(spans):
        if start > begin:
            break
        begin = max(begin, stop)
    return begin if begin < end else None


def _shown(source: Source, read: Read, offset: int) -> str:
    return describe_read(source, read, offset, read.ids[list(read.offsets).index(offset)])


class NoDirtyReads(Invariant):
    """Check I9: each record that any reader received is at its offset at the end, with its timestamp.

    Records may be missing from the final log because of a trim or of compaction.
    """

    key, name = "I9", "no dirty reads"

    def conclude(self, ending: Ending) -> None:
        for facts in self.partitions():
            log = ending.log(facts.tp)
            if log is None:
                continue
            for source, read in facts.reads:
                self.tally.observations += len(read.ids)
                if not log.holds(read.offsets, read.ids, read.ts):
                    self._dirty(facts, source, read, log, ending)

    def _dirty(self, facts: PartitionFacts, source: Source, read: Read, log: FinalLog, ending: Ending) -> None:
        trimmed_to = facts.trimmed_to
        for offset, record_id, timestamp in zip(read.offsets, read.ids, read.ts, strict=True):
            place = log.place(offset)
            if place is None:
                if ending.may_lack(log, offset, trimmed_to):
                    continue
                there = "nothing"
            elif log.ids[place] != record_id:
                there = record_name(log.ids[place])
            elif log.ts[place] != timestamp:
                there = f"the record with timestamp {log.ts[place]} instead of {timestamp}"
            else:
                continue
            if not self.only_counted():
                says = f"{record_name(record_id)} was read at offset {offset}, but at the end there is {there}"
                proof = describe_read(source, read, offset, record_id)
                self.violated(facts.tp, read.t1, says, proof, facts.produce(record_id), str(log))


class BelowHighWatermark(Invariant):
    """Check I10: no answer has a record at or above the high watermark that it names, or a high watermark above
    all that brokers had until then.

    The second part is checked if brokers recorded their high watermarks, each before any client could see it. An answer
    without a high watermark is not checked.
    """

    key, name = "I10", "no reads above the high watermark"

    def examine(self) -> None:
        for facts in self.partitions():
            for source, read in self.new_in(facts.reads):
                if read.hw < 0:
                    continue
                self.tally.observations += 1
                had = facts.high_watermarks.until(read.t1)
                if read.offsets and read.offsets[-1] >= read.hw:
                    says = f"offset {read.offsets[-1]} was returned with high watermark {read.hw}"
                elif had is not None and read.hw > had:
                    says = f"an answer had high watermark {read.hw}, but the highest one of any broker was {had}"
                else:
                    continue
                if not self.only_counted():
                    when = f"{seconds(read.t0)}–{seconds(read.t1)}"
                    last = f", last offset {read.offsets[-1]}" if read.offsets else ""
                    proof = f"read by {source.name} (session {read.session}), {when}{last}, high watermark {read.hw}"
                    self.violated(facts.tp, read.t1, says, proof)
