"""Check I5 and I6: the order of the log is that of real time, and that of each producer."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidelog.history.columns import SEQUENCE_BITS, Column, as_array, consecutive
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, PartitionFacts
from verify.checker.findings import record_name, seconds
from verify.checker.invariant import Ending, Invariant


class RealTimeOrder(Invariant):
    """Check I5: a record that was acknowledged (acks=all) before another was sent has the smaller offset.

    The later record is an acknowledged one, or at the end any other produced record in the final log.
    """

    key, name = "I5", "order of real time"

    def examine(self) -> None:
        for facts in self.partitions():
            for _, event in self.new_in(facts.produces):
                self._judge(facts, event.ids, event.offsets)

    def conclude(self, ending: Ending) -> None:
        self.examine()
        for facts in self.partitions():
            log = ending.log(facts.tp)
            unknown = set(_unacknowledged(facts))
            if log is not None and facts.produces and unknown:
                rest = [(each, offset) for each, offset in zip(log.ids, log.offsets, strict=True) if each in unknown]
                self._judge(facts, [record_id for record_id, _ in rest], [offset for _, offset in rest])

    def _judge(self, facts: PartitionFacts, ids: Column, offsets: Column) -> None:
        if not ids:
            return
        self.tally.observations += len(ids)
        # a record without a produce call counts as sent before everything else
        invoked_at = facts.invoked_at.numbers(ids)
        times, greatest = facts.acknowledgements.settled()
        before = bisect_left(times, max(invoked_at))
        if before == 0 or greatest[before - 1] < min(offsets):
            return  # even the latest of them was sent before a larger offset was acknowledged
        for record_id, offset, asked in zip(ids, offsets, invoked_at, strict=True):
            before = bisect_left(times, asked)
            if before and greatest[before - 1] >= offset and not self.only_counted():
                earlier = greatest[before - 1]
                there = facts.observed_offsets.id_at(earlier)
                sent = f"{record_name(record_id)} was sent after offset {earlier} was acknowledged"
                says = f"{sent}, but got offset {offset}"
                self.violated(facts.tp, asked, says, facts.produce(there), facts.produce(record_id))


def _unacknowledged(facts: PartitionFacts) -> Iterator[int]:
    """Yield the ids of records with a produce call and without an acknowledgement to a producer with acks=all."""
    for event in facts.invocations:
        if not facts.acknowledged.has_all(event.ids):
            yield from (each for each in event.ids if each not in facts.acknowledged)


@dataclass(slots=True)
class _Chain:
    """One producer's observed records in a partition, by id, each with its offset."""

    ids: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))


class ProducerOrder(Invariant):
    """Check I6: the records of an idempotent producer are in the order in which it sent them.

    The observations are pairs of neighbours, because a producer's only record in a partition has no order.
    """

    key, name = "I6", "order of each producer"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._chains: dict[TopicPartition, dict[int, _Chain]] = defaultdict(lambda: defaultdict(_Chain))

    def examine(self) -> None:
        for facts in self.partitions():
            chains = self._chains[facts.tp]
            for ids, offsets in self.new_in(facts.observed_offsets.fresh):
                if isinstance(offsets, range) and self._append(chains[ids[0] >> SEQUENCE_BITS], ids, offsets):
                    continue
                for record_id, offset in zip(ids, offsets, strict=True):
                    chain = chains[record_id >> SEQUENCE_BITS]
                    if not chain.ids or (record_id > chain.ids[-1] and offset > chain.offsets[-1]):
                        chain.ids.append(record_id)
                        chain.offsets.append(offset)
                    else:
                        self._insert(facts, chain, record_id, offset)
        self.tally.observations = sum(
            len(chain.ids) - 1
            for chains in self._chains.values()
            for producer, chain in chains.items()
            if chain.ids and self.facts.is_idempotent_producer(producer)
        )

    def _append(self, chain: _Chain, ids: Column, offsets: range) -> bool:
        """Add records of one producer with consecutive ids at once. Return False without effect if the records are not
        such ones, or do not follow the chain.
        """
        behind = not chain.ids or (ids[0] > chain.ids[-1] and offsets[0] > chain.offsets[-1])
        if behind and ids[0] >> SEQUENCE_BITS == ids[-1] >> SEQUENCE_BITS and isinstance(consecutive(ids), range):
            chain.ids.extend(as_array(ids))
            chain.offsets.extend(as_array(offsets))
            return True
        return False

    def _insert(self, facts: PartitionFacts, chain: _Chain, record_id: int, offset: int) -> None:
        """Insert a record between its neighbours by id; a known record is ignored.

        A record that is out of order is left out, and reported if its producer is idempotent.
        """
        place = bisect_left(chain.ids, record_id)
        if place < len(chain.ids) and chain.ids[place] == record_id:
            return
        neighbours = []
        if place > 0 and chain.offsets[place - 1] > offset:
            neighbours.append(place - 1)
        if place < len(chain.ids) and chain.offsets[place] < offset:
            neighbours.append(place)
        if not neighbours:
            chain.ids.insert(place, record_id)
            chain.offsets.insert(place, offset)
        elif self.facts.is_idempotent(record_id) and not self.only_counted():
            other, other_offset = chain.ids[neighbours[0]], chain.offsets[neighbours[0]]
            at = f"{record_name(record_id)} is at offset {offset}"
            says = f"{at}, but its producer's {record_name(other)} at {other_offset}"
            t = facts.invoked_at.get(record_id) or 0
            self.violated(facts.tp, t, says, facts.produce(other), facts.produce(record_id), f"{at} ({seconds(t)})")
