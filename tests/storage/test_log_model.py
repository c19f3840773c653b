"""A log compared with a simple model, through appends, compaction, retention and every way to end, in any order.

The ways to end are the branches of each durability rule: a clean close, a kill (the page cache survives), a power
failure (unflushed data may be lost), and a power failure right after a clean close. After any of them:

- the log is a run of the appended records, up to its end or to a point at or past its recovery point;
- in a topic with LogAppendTime, timestamps never fall, even if the clock is set back;
- producers are known as the surviving log, or a clean close, has them: repeated batches are recognised, the next ones
  are accepted, and gaps are refused;
- compaction removes a record only if a later one below its bound has the same key.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.configs.log_config import LogConfig
from storage.directory.directory_checkpoints import Committed
from storage.log.log import Log
from storage.log_maintenance import LogMaintenance
from storage.log_manager import LogManager
from tests.storage.cleaning import keyed
from tests.storage.logs import NOW, config, records_of
from tests.storage.soundness import batches_of
from tidelog.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from tidelog.model import TopicPartition
from tidelog.records import TimestampType, read_header, stamp_log_append_time
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT, Fate

ROOT = Path("/data/broker")
TP = TopicPartition("orders", 0)
KEYS = (b"a", b"b", b"c")
PRODUCERS = (1, 2)
#: The time at which all deleted segments may be removed.
LATER_MS = 10**9
#: The data that each kind of end may lose. A power failure is drawn as a seed, or as the worst case.
Loss = Fate | int
losses = st.one_of(st.just(FORGOTTEN), st.integers(0, 2**16))
#: The amount by which the clock is set back while the broker is down.
set_back = st.sampled_from([0, 0, 60_000])


class Entry(NamedTuple):
    """One appended record: its offset, key and value, and the timestamp that readers see."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


@dataclass(frozen=True)
class Sent:
    """The last batch of a producer."""

    epoch: int
    sequence: int
    records: int
    base_offset: int
    timestamp: int

    @property
    def following(self) -> int:
        return self.sequence + self.records


class LogMachine(RuleBasedStateMachine):
    """The model: `entries` are all records appended since the last truncation, `sent` each producer's batches."""

    @initialize(log_append_time=st.booleans(), compact=st.booleans(), seed=st.integers(0, 2**16))
    def begin(self, log_append_time: bool, compact: bool, seed: int) -> None:
        self.log_append_time = log_append_time
        self.compacts = compact
        self.random = Random(seed)
        self.clock_ms = NOW
        self.boots = 1
        self.entries: list[Entry] = []
        self.sent: dict[int, list[Sent]] = {}
        self.largest_stamp = -1
        #: The log start that outlasts every end: it is checkpointed, or the segments before it are gone for good.
        self.durable_start = 0
        self.values = 0
        self.files = CrashableFiles()
        self.open()

    @property
    def config(self) -> LogConfig:
        kind = "LogAppendTime" if self.log_append_time else "CreateTime"
        policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0} if self.compacts else {}
        return config(message_timestamp_type=kind, segment_bytes=500, index_interval_bytes=100, **policy)

    def open(self) -> None:
        self.manager = LogManager.open((ROOT,), self.files, 1, "c1", f"boot {self.boots}")
        self.manager.open_logs(lambda topic: self.config)
        self.log: Log = self.manager.get_or_create(TP, "AAAAAAAAAAAAAAAAAAAAAQ", self.config)

    # --- appends -------------------------------------------------------------------------------------

    @rule(
        producer=st.sampled_from((None, *PRODUCERS)),
        batches=st.lists(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), min_size=1, max_size=4),
    )
    def append(self, producer: int | None, batches: list[list[bytes]]) -> None:
        for keys in batches:
            last = self.sent.get(producer, [None])[-1] if producer is not None else None
            self._append(producer, last.epoch if last else 0, last.following if last else 0, keys)

    @rule(producer=st.sampled_from(PRODUCERS))
    def begin_producer_epoch(self, producer: int) -> None:
        last = self.sent.get(producer, [None])[-1]
        self._append(producer, last.epoch + 1 if last else 0, 0, [b"a"])

    def _append(self, producer: int | None, epoch: int, sequence: int, keys: list[bytes]) -> None:
        created_ms, end_offset = self.clock_ms - 7, self.log.log_end_offset
        pairs = [(key, self._value()) for key in keys]
        appended = self.log.append_as_leader(self._batch(pairs, producer, epoch, sequence), 0, self.clock_ms)
        assert (appended.base_offset, appended.last_offset) == (end_offset, end_offset + len(keys) - 1)
        stamp = appended.log_append_time_ms if self.log_append_time else created_ms
        if self.log_append_time:
            assert max(self.clock_ms, self._last_stamp()) <= stamp <= max(self.clock_ms, self.largest_stamp)
        self._note(appended.base_offset, pairs, stamp, producer, epoch, sequence)

    def _batch(
        self, pairs: list[tuple[bytes, bytes | None]], producer: int | None, epoch: int, sequence: int, base: int = 0
    ) -> bytes:
        identity = {} if producer is None else {"producer_id": producer, "producer_epoch": epoch}
        sequences = {} if producer is None else {"base_sequence": sequence}
        return keyed(*pairs, timestamp=self.clock_ms - 7, base_offset=base, leader_epoch=0, **identity, **sequences)

    def _value(self) -> bytes | None:
        self.values += 1
        return b"%d" % self.values * 4 if self.values % 7 else None

    def _note(
        self,
        base: int,
        pairs: list[tuple[bytes, bytes | None]],
        stamp: int,
        producer: int | None,
        epoch: int,
        sequence: int,
    ) -> None:
        self.entries += [Entry(base + slot, *pair, stamp) for slot, pair in enumerate(pairs)]
        self.largest_stamp = max(self.largest_stamp, stamp)
        if producer is not None:
            self.sent.setdefault(producer, []).append(Sent(epoch, sequence, len(pairs), base, stamp))

    def _last_stamp(self) -> int:
        """Return the largest timestamp in the segments that retention has left, also of emptied batches."""
        first = self.log.segment_base_offsets[0]
        stamps = [entry.timestamp for entry in self.entries if entry.offset >= first]
        return max([*stamps, *(read_header(batch).max_timestamp for batch in batches_of(self.log))], default=-1)

    @rule(ahead_ms=st.integers(0, 5_000), hole=st.integers(0, 2))
    def follow(self, ahead_ms: int, hole: int) -> None:
        """Append as a follower of another leader whose clock is ahead; offsets are missing if its log was compacted."""
        base = self.log.log_end_offset + (hole if self.compacts else 0)
        pairs = [(b"b", self._value())]
        batch = bytearray(self._batch(pairs, None, -1, -1, base))
        stamp = self.clock_ms - 7
        if self.log_append_time:
            stamp = max(self.clock_ms, self._last_stamp()) + ahead_ms
            stamp_log_append_time(batch, 0, stamp)
        self.log.append_as_follower(bytes(batch), self.clock_ms)
        self._note(base, pairs, stamp, None, -1, -1)

    @rule(step_ms=st.integers(-3_600_000, 10_000))
    def change_clock(self, step_ms: int) -> None:
        self.clock_ms += step_ms

    # --- answers to producers ------------------------------------------------------------------------

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat_or_leave_a_gap(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.sent)))
        last, before = self.sent[producer][-1], self.log.log_end_offset
        pairs: list[tuple[bytes, bytes | None]] = [(b"a", b"again")] * last.records
        repeated = self.log.append_as_leader(self._batch(pairs, producer, last.epoch, last.sequence), 0, self.clock_ms)
        assert (repeated.duplicate, repeated.base_offset) == (True, last.base_offset)
        if self.log_append_time:
            assert repeated.log_append_time_ms == last.timestamp
        with pytest.raises(OutOfOrderSequenceError):
            self.log.append_as_leader(self._batch(pairs, producer, last.epoch, last.following + 1), 0, self.clock_ms)
        if last.epoch:
            with pytest.raises(InvalidProducerEpochError):
                self.log.append_as_leader(self._batch(pairs, producer, last.epoch - 1, 0), 0, self.clock_ms)
        assert self.log.log_end_offset == before

    # --- maintenance --------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock_ms)

    @rule(rolled_only=st.booleans())
    def flush(self, rolled_only: bool) -> None:
        self.log.flush(rolled_only=rolled_only)
        self.durable_start = max(self.durable_start, self.log.segment_base_offsets[0])
        assert self.log.recovery_point == (
            self.log.segment_base_offsets[-1] if rolled_only else self.log.log_end_offset
        ) or (rolled_only and self.log.recovery_point > self.log.segment_base_offsets[-1])

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint_recovery_points()
        self.manager.checkpoint_log_starts()
        self.durable_start = self.log.log_start_offset
        self.manager.checkpoint_high_watermarks({TP: Committed.of(self.log, self.log.log_start_offset)})

    @rule(back=st.integers(0, 9), refill=st.sampled_from((None, *PRODUCERS)))
    def truncate(self, back: int, refill: int | None) -> None:
        """Remove whole batches from an offset on. Producers are then as the batches before it have them.

        With `refill` the log ends at the same offset as before, so that a stale checkpoint of that offset would seem
        valid.
        """
        old_end_offset = self.log.log_end_offset
        offset = max(self.log.log_end_offset - back, self.log.log_start_offset)
        before = batches_of(self.log)
        self.log.truncate_to(offset)
        assert batches_of(self.log) == [batch for batch in before if read_header(batch).next_offset <= offset]
        end_offset = self.log.log_end_offset
        assert end_offset <= offset
        self._cut(end_offset)
        self._adopt_unlogged_producers()
        if refill is not None and end_offset < old_end_offset:
            self.append(refill, [[b"c"] * (old_end_offset - end_offset)])

    @rule(ahead=st.integers(0, 12))
    def delete_records(self, ahead: int) -> None:
        end_offset = self.log.log_end_offset
        self.log.delete_records(min(self.log.log_start_offset + ahead, end_offset), end_offset)

    @rule(kept_bytes=st.sampled_from([0, 400, 1_000]))
    def retain(self, kept_bytes: int) -> None:
        self.log.config = config(cleanup_policy="delete", retention_bytes=kept_bytes, retention_ms=-1)
        try:
            for segment in self.log.delete_old_segments(self.clock_ms, self.log.log_end_offset):
                segment.delete()
        finally:
            self.log.config = self.config

    @precondition(lambda self: self.compacts)
    @rule(below=st.integers(0, 6))
    def compact(self, below: int) -> None:
        """Compaction removes only records that a later one below the bound replaces; tombstones stay for their time."""
        bound = max(self.log.log_end_offset - below, self.log.log_start_offset)
        before = self._read()
        maintenance = LogMaintenance(self.manager, self.files)
        if (cleaning := maintenance.begin_cleaning(self.clock_ms, {TP: bound})) is not None:
            while cleaning.write_next():
                cleaning.install(0)
            assert cleaning.end()
            maintenance.remove_deleted(LATER_MS)
        after = self._read()
        latest = {entry.key: entry.offset for entry in sorted({*self.entries, *before}) if entry.offset < bound}
        gone = set(before) - set(after)
        assert set(after) <= set(before), "every record was appended"
        assert all(entry.offset < latest.get(entry.key, -1) for entry in gone), (bound, gone)
        start_offset = self.log.log_start_offset
        self.entries = [
            entry
            for entry in self.entries
            # Records below the log start are unreadable, and so may be a replaced one.
            if entry not in gone and (entry.offset >= start_offset or entry.offset >= latest.get(entry.key, -1))
        ]

    # --- ends ----------------------------------------------------------------------------------------

    @rule(
        first=st.lists(st.sampled_from(["roll", "retain", "append"]), max_size=3),
        then=st.one_of(st.none(), losses),
        back_ms=set_back,
    )
    def close(self, first: list[str], then: Loss | None, back_ms: int) -> None:
        """Close cleanly. Everything survives, even if the power fails right after it.

        `first` decides how much is left to flush, and whether only a snapshot holds a producer.
        """
        for work in first:
            match work:
                case "roll":
                    self.log.roll(self.clock_ms)
                case "retain":
                    self.retain(0)
                case "append":
                    self._append(None, 0, 0, [b"b"])
        known, start_offset = self._known_producers(), self.log.log_start_offset
        self.manager.close()
        self._restart(KEPT if then is None else then, back_ms, same_boot=then is None)
        assert self.log.log_start_offset == start_offset
        self._assert_run(self._end_of_entries())
        assert self.log.recovery_point == self.log.log_end_offset
        assert self._known_producers() == known
        self._append_after(back_ms)

    @rule(rolled=st.booleans(), back_ms=set_back)
    def kill(self, rolled: bool, back_ms: int) -> None:
        """End the process; the page cache survives."""
        if rolled:
            self.log.roll(self.clock_ms)
        known = self._known_producers()
        self._restart(KEPT, back_ms, same_boot=True)
        self._assert_run(self._end_of_entries())
        assert self._known_producers() == known
        self._append_after(back_ms)

    @rule(flushed=st.booleans(), rolled=st.booleans(), loss=losses, back_ms=set_back)
    def power_cut(self, flushed: bool, rolled: bool, loss: Loss, back_ms: int) -> None:
        """Expect all bytes below the recovery point; unflushed bytes may be lost."""
        if flushed:
            self.log.flush()
        if rolled:
            self.log.roll(self.clock_ms)
        recovery_point = self.log.recovery_point
        self._restart(loss, back_ms, same_boot=False)
        self._assert_run(recovery_point)
        self._cut(self.log.log_end_offset)
        self._adopt_unlogged_producers()
        self._append_after(back_ms)

    def _append_after(self, back_ms: int) -> None:
        """The first append has a lower timestamp if the log has forgotten its last one."""
        if back_ms:
            self._append(None, 0, 0, [b"c"])

    def _restart(self, loss: Loss, back_ms: int, *, same_boot: bool) -> None:
        self.clock_ms -= back_ms
        self.boots += not same_boot
        self.files = self.files.crash(Random(loss) if isinstance(loss, int) else loss)
        self.open()

    # --- comparing -----------------------------------------------------------------------------------

    def _end_of_entries(self) -> int:
        return self.entries[-1].offset + 1 if self.entries else self.log.log_start_offset

    def _read(self) -> list[Entry]:
        return [Entry(r.offset, r.key or b"", r.value, r.timestamp) for r, _ in records_of(self.log)]

    def _assert_run(self, least_end: int) -> None:
        """Expect all appended records from some offset on, at least up to `least_end`."""
        start_offset, end_offset = self.log.log_start_offset, self.log.log_end_offset
        assert end_offset >= least_end
        assert start_offset >= self.durable_start or end_offset < self.durable_start
        read = self._read()
        appended = {entry.offset: entry for entry in self.entries}
        strangers = [entry for entry in read if appended.get(entry.offset, entry) != entry]
        assert not strangers, "the record differs from the appended one"
        missing = {offset for offset in appended if start_offset <= offset < end_offset} - {e.offset for e in read}
        assert not missing, "appended, and neither compacted nor past the end"

    def _cut(self, end_offset: int) -> None:
        self.durable_start = min(self.durable_start, self.log.log_start_offset)
        self.entries = [entry for entry in self.entries if entry.offset < end_offset]
        self.sent = {
            producer: kept
            for producer, batches in self.sent.items()
            if (kept := [sent for sent in batches if sent.base_offset + sent.records <= end_offset])
        }

    def _known_producers(self) -> dict[int, tuple[int, int, int]]:
        """Return epoch, last sequence and last offset by producer id."""
        found = self.log._appender.producers.producers
        return {
            each: (known.epoch, known.batches[-1].last_sequence, known.batches[-1].last_offset)
            for each, known in found.items()
            if known.batches
        }

    def _adopt_unlogged_producers(self) -> None:
        """A producer is known at least as the batches in the log have it; only a snapshot knows more.

        Snapshots may be lost, and compaction keeps the last batch of a producer, which a truncation may remove.
        """
        logged: dict[int, int] = {}
        for batch in batches_of(self.log):
            header = read_header(batch)
            logged[header.producer_id] = header.last_offset
        known = self._known_producers()
        for producer, batches in list(self.sent.items()):
            if producer not in known:
                assert producer not in logged, f"producer {producer} is forgotten"
                del self.sent[producer]
                continue
            assert known[producer][2] >= logged.get(producer, -1)
            while batches and self._state(batches[-1]) != known[producer]:
                batches.pop()
            assert batches, f"producer {producer} was never so: {known[producer]}"
        assert known.keys() == self.sent.keys()

    @staticmethod
    def _state(sent: Sent) -> tuple[int, int, int]:
        return sent.epoch, sent.following - 1, sent.base_offset + sent.records - 1

    @invariant()
    def producers_are_known_as_the_log_has_them(self) -> None:
        assert self._known_producers() == {each: self._state(batches[-1]) for each, batches in self.sent.items()}

    @invariant()
    def stamps_never_fall(self) -> None:
        headers = [read_header(batch) for batch in batches_of(self.log)]
        if self.log_append_time:
            assert all(header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers)
            assert all(before.max_timestamp <= after.max_timestamp for before, after in pairwise(headers))


def test_log_and_its_model_agree_through_appends_upkeep_and_every_end() -> None:
    run_state_machine_as_test(LogMachine, settings=settings(max_examples=200, stateful_step_count=40))
