"""I2, I3, I4: one record at an offset, one offset for a record, and no record that nobody produced."""

from __future__ import annotations

from tidelog.history.columns import Column
from verify.checker.facts import PartitionFacts
from verify.checker.findings import record_name
from verify.checker.invariant import Invariant


class OneRecordAnOffset(Invariant):
    """I2: whoever tells of an offset, an acknowledgement or an answer to any reader, tells of the same record.

    The log that a client reads in the end is the last of those who tell.
    """

    key, name = "I2", "one record at an offset"

    def examine(self) -> None:
        for facts in self.partitions():
            for offset, first, other in self.new_in(facts.sightings.contradictions):
                if not self.only_counted():
                    says = f"offset {offset} holds {record_name(first)}, and {record_name(other)}"
                    proof = (next(facts.witnesses(offset, each), None) for each in (first, other))
                    self.violated(facts.tp, 0, says, *(each for each in proof if each is not None))
        self.tally.observations = sum(facts.sightings.compared for facts in self.partitions())


class OneOffsetARecord(Invariant):
    """I3: a record of an idempotent producer stands in the log once.

    Of another producer a record may stand there as often as it was tried, and no history tells how often that was.
    """

    key, name = "I3", "no duplicates"

    def examine(self) -> None:
        for facts in self.partitions():
            for record_id, first, other in self.new_in(facts.sightings.duplicates):
                if self.facts.is_idempotent(record_id) and not self.only_counted():
                    proof = (next(facts.witnesses(offset, record_id), None) for offset in (first, other))
                    says = f"{record_name(record_id)} stands at offset {first} and at {other}"
                    operations = (each for each in proof if each is not None)
                    self.violated(facts.tp, 0, says, facts.produce(record_id), *operations)
        self.tally.observations = sum(
            count
            for facts in self.partitions()
            for producer, count in facts.sightings.records.items()
            if self.facts.is_idempotent_producer(producer)
        )


class NoPhantoms(Invariant):
    """I4: what is seen was produced to this partition, is whole, and had not been refused for certain."""

    key, name = "I4", "no phantoms, no aborted reads"

    def examine(self) -> None:
        for facts in self.partitions():
            for ids, offsets in self.new_in(facts.sightings.fresh):
                self.tally.observations += len(ids)
                if not facts.invoked_at.has_all(ids):
                    self._phantoms(facts, ids, offsets)
                if facts.failed and not facts.failed.keys().isdisjoint(ids):
                    self._aborted(facts, ids, offsets)
            for refused in self.new_in(facts.refusals):
                at = [(each, facts.sightings.offset_of(each)) for each in refused]
                seen = [(record_id, offset) for record_id, offset in at if offset is not None]
                self._aborted(facts, [record_id for record_id, _ in seen], [offset for _, offset in seen])

    def _phantoms(self, facts: PartitionFacts, ids: Column, offsets: Column) -> None:
        for record_id, offset in zip(ids, offsets, strict=True):
            if record_id in facts.invoked_at or self.only_counted():
                continue
            home = self.facts.home_of(record_id)
            says = f"{record_name(record_id)} stands at offset {offset}, and "
            says += "nobody ever produced it" if home is None else f"it was produced to {home}"
            produce = [] if home is None else [self.facts.of(home).produce(record_id)]
            self.violated(facts.tp, 0, says, *produce, *list(facts.witnesses(offset, record_id))[:1])

    def _aborted(self, facts: PartitionFacts, ids: Column, offsets: Column) -> None:
        for record_id, offset in zip(ids, offsets, strict=True):
            if record_id in facts.failed and not self.only_counted():
                says = f"{record_name(record_id)} stands at offset {offset}, and it was refused"
                witnesses = list(facts.witnesses(offset, record_id))[:1]
                self.violated(facts.tp, facts.failed[record_id], says, facts.produce(record_id), *witnesses)
