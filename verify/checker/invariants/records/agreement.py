"""Check I2, I3 and I4: one record per offset, one offset per record, and only produced records."""

from __future__ import annotations

from tidelog.history.columns import Column
from verify.checker.facts import PartitionFacts
from verify.checker.findings import record_name
from verify.checker.invariant import Invariant


class OneRecordAnOffset(Invariant):
    """Check I2: all acknowledgements with acks=all and answers to readers have the same record at an offset.

    The final log is included (`Ending.log`).
    """

    key, name = "I2", "one record at an offset"

    def examine(self) -> None:
        for facts in self.partitions():
            for offset, first, other in self.new_in(facts.observed_offsets.contradictions):
                if not self.only_counted():
                    says = f"offset {offset} has {record_name(first)} and also {record_name(other)}"
                    proof = (next(facts.evidence_of(offset, each), None) for each in (first, other))
                    self.violated(facts.tp, 0, says, *(each for each in proof if each is not None))
        self.tally.observations = sum(facts.observed_offsets.compared for facts in self.partitions())


class OneOffsetARecord(Invariant):
    """Check I3: a record of an idempotent producer is in the log once.

    A record of another producer may be in the log once per attempt, and histories do not contain the number of
    attempts.
    """

    key, name = "I3", "no duplicates"

    def examine(self) -> None:
        for facts in self.partitions():
            for record_id, first, other in self.new_in(facts.observed_offsets.duplicates):
                if self.facts.is_idempotent(record_id) and not self.only_counted():
                    proof = (next(facts.evidence_of(offset, record_id), None) for offset in (first, other))
                    says = f"{record_name(record_id)} is at offset {first} and at {other}"
                    operations = (each for each in proof if each is not None)
                    self.violated(facts.tp, 0, says, facts.produce(record_id), *operations)
        self.tally.observations = sum(
            count
            for facts in self.partitions()
            for producer, count in facts.observed_offsets.records.items()
            if self.facts.is_idempotent_producer(producer)
        )


class NoPhantoms(Invariant):
    """Check I4: an observed record was produced to this partition, is undamaged, and was not definitely refused."""

    key, name = "I4", "no phantoms, no aborted reads"

    def examine(self) -> None:
        for facts in self.partitions():
            for ids, offsets in self.new_in(facts.observed_offsets.fresh):
                self.tally.observations += len(ids)
                if not facts.invoked_at.has_all(ids):
                    self._phantoms(facts, ids, offsets)
                if facts.failed and not facts.failed.keys().isdisjoint(ids):
                    self._aborted(facts, ids, offsets)
            for refused in self.new_in(facts.refusals):
                at = [(each, facts.observed_offsets.offset_of(each)) for each in refused]
                seen = [(record_id, offset) for record_id, offset in at if offset is not None]
                self._aborted(facts, [record_id for record_id, _ in seen], [offset for _, offset in seen])

    def _phantoms(self, facts: PartitionFacts, ids: Column, offsets: Column) -> None:
        for record_id, offset in zip(ids, offsets, strict=True):
            if record_id in facts.invoked_at or self.only_counted():
                continue
            home = self.facts.partition_of(record_id)
            says = f"{record_name(record_id)} is at offset {offset}, but "
            says += "no client produced it" if home is None else f"it was produced to {home}"
            produce = [] if home is None else [self.facts.of(home).produce(record_id)]
            self.violated(facts.tp, 0, says, *produce, *list(facts.evidence_of(offset, record_id))[:1])

    def _aborted(self, facts: PartitionFacts, ids: Column, offsets: Column) -> None:
        for record_id, offset in zip(ids, offsets, strict=True):
            if record_id in facts.failed and not self.only_counted():
                says = f"{record_name(record_id)} is at offset {offset}, but it was refused"
                evidence_of = list(facts.evidence_of(offset, record_id))[:1]
                self.violated(facts.tp, facts.failed[record_id], says, facts.produce(record_id), *evidence_of)
