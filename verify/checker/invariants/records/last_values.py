"""Check I23: compaction keeps the last committed record of each key."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from verify.checker.facts import PartitionFacts
from verify.checker.findings import record_name
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending, Invariant


class LastValues(Invariant):
    """Check I23: each log has, for each key, the last committed record, or a later one of that key.

    A record is committed if it was acknowledged with acks=all, or if a consumer has read it. The outcome of the later
    record may be unknown, but the log itself must have that record: if compaction replaced a record by one that the log
    lost, both are lost.

    A key may be missing altogether if its last record may have been a tombstone, even one whose outcome is unknown. If
    a tombstone is gone and the log has an earlier record of its key, the deleted key is back, which is a violation.

    The invariant ignores records below the log start, and records whose key the history does not contain.
    """

    key, name = "I23", "compaction keeps each key's last value"

    def conclude(self, ending: Ending) -> None:
        for tp, logs in ending.logs.items():
            facts = self.facts.of(tp)
            keys, tombstones = _keys(facts)
            last = _last_committed(facts, keys)
            deleted = {keys[each] for each in tombstones if _may_be_last(facts, each, last.get(keys[each]))}
            for log in logs:
                self._judge(facts, log, keys, last, deleted)

    def _judge(
        self,
        facts: PartitionFacts,
        log: FinalLog,
        keys: Mapping[int, int],
        last: Mapping[int, tuple[int, int]],
        deleted: Container[int],
    ) -> None:
        latest_here = {
            keys[record_id]: (offset, record_id)
            for offset, record_id in zip(log.offsets, log.ids, strict=True)
            if record_id in keys
        }
        for key, (offset, record_id) in last.items():
            if offset < log.log_start:
                continue
            self.tally.observations += 1
            here, other = latest_here.get(key, (-1, -1))
            if here >= offset or (here < 0 and key in deleted) or self.only_counted():
                continue
            stands = f"{record_name(other)} at offset {here}" if here >= 0 else "no record of the key"
            self.violated(
                log.tp,
                0,
                f"the last committed record of key {key}, {record_name(record_id)} at offset {offset}, is gone from"
                f" {log.name}, which has {stands}",
                facts.produce(record_id),
                str(log),
            )


def _may_be_last(facts: PartitionFacts, tombstone: int, last: tuple[int, int] | None) -> bool:
    """Return whether the tombstone may be at or after the last committed record (offset, id) of its key.

    False if no record of the key is committed, or if the tombstone was refused.
    """
    if last is None or tombstone in facts.failed:
        return False
    offset = facts.observed_offsets.offset_of(tombstone)
    return offset is None or offset >= last[0]


def _keys(facts: PartitionFacts) -> tuple[dict[int, int], set[int]]:
    """Return the number of each record's key by record id, and the ids of tombstones, as far as they are known."""
    keys: dict[int, int] = {}
    tombstones: set[int] = set()
    for event in facts.invocations:
        if event.keys is not None:
            keys.update(zip(event.ids, event.keys, strict=True))
        if event.tombstones is not None:
            tombstones.update(
                each for each, has_no_value in zip(event.ids, event.tombstones, strict=True) if has_no_value
            )
    return keys, tombstones


def _last_committed(facts: PartitionFacts, keys: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return (offset, id) of the last committed record of each key, by key number."""
    last: dict[int, tuple[int, int]] = {}
    for offset, record_id in _committed(facts):
        if (key := keys.get(record_id)) is not None and (offset, record_id) > last.get(key, (-1, -1)):
            last[key] = offset, record_id
    return last


def _committed(facts: PartitionFacts) -> Iterator[tuple[int, int]]:
    """Yield (offset, id) of each record that was acknowledged with acks=all or read, possibly more than once."""
    for _, acknowledged in facts.produces:
        yield from zip(acknowledged.offsets, acknowledged.ids, strict=True)
    for _, read in facts.reads:
        yield from zip(read.offsets, read.ids, strict=True)
