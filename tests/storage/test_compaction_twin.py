"""Compaction compared with a simple model: a list of all records and the last one of each key, in random sequences."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.log import Log
from tests.storage.cleaning import Pair, clean, keyed
from tests.storage.logs import NOW, UnsyncedFiles, config, first_at_or_after, largest, records_of
from tests.storage.soundness import assert_sound
from tidelog.records import Codec, decode_records, iter_headers

DELETE_RETENTION_MS = 1000
SETTINGS = {
    "segment_bytes": 600,
    "index_interval_bytes": 120,
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": DELETE_RETENTION_MS,
}
#: Records without a key get in while the topic is not compacted yet.
APPENDING, COMPACTING = config(**SETTINGS), config(cleanup_policy="compact", **SETTINGS)

_keys = st.sampled_from([b"a", b"b", b"c", b"d", b"a long key, held as a digest", b"a long key, held as another", None])
_values = st.sampled_from([b"1", b"2" * 40, b"", None, None])
_append = st.tuples(
    st.just("append"),
    st.tuples(
        st.lists(st.tuples(_keys, _values), min_size=1, max_size=5),
        st.integers(-20, 20),
        st.sampled_from([Codec.NONE, *Codec]),
        st.booleans(),
    ),
)
_clean = st.tuples(
    st.just("clean"),
    st.tuples(st.sampled_from([0, 3 * 192, 1 << 20]), st.sampled_from([0, 600, 2000, 2000]), st.floats(0, 1)),
)
_event = st.one_of(
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("trim"), st.floats(0, 1)),
    st.tuples(st.just("reopen"), st.booleans()),
)
_roll = ("roll", None)
_steps = st.tuples(st.lists(_append, min_size=1, max_size=5), st.lists(_event, max_size=2), _clean).map(
    lambda parts: [*parts[0], *parts[1], _roll, parts[2]]
)
#: Deleted records expire only in long sequences. Without a branch of their own, some runs have almost none.
_rounds = st.one_of(st.lists(_steps, min_size=4, max_size=9), st.lists(_steps, min_size=1, max_size=9))
_sequences = _rounds.map(lambda rounds: list(chain.from_iterable(rounds)))


@dataclass
class Batch:
    """`rows`: (offset, timestamp, key, value) of the remaining records."""

    last_offset: int
    rows: list[tuple[int, int, bytes | None, bytes | None]]
    horizon_ms: int | None = None


@dataclass
class CompactedLogWithModel:
    """The log and its expected contents."""

    directory: Path
    now_ms: int = NOW
    recorded: int = 0
    sequence: int = 0
    is_cleaned_part_cut: bool = False
    batches: list[Batch] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.log = self._open(clean=True)

    def _open(self, *, clean: bool, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
        log = Log.open(
            self.directory,
            APPENDING,
            UnsyncedFiles(),
            recovery_point=recovery_point,
            clean=clean,
            cleaned_to=self.recorded,
        )
        log.raise_log_start(log_start_offset)
        return log

    def append(self, what: tuple[list[Pair], int, Codec, bool]) -> None:
        pairs, shift, codec, idempotent = what
        timestamp = NOW + shift
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.sequence} if idempotent else {}
        written = keyed(*pairs, timestamp=timestamp, codec=codec, **header)
        base_offset = self.log.append_as_leader(written, 0, NOW).base_offset
        if idempotent:
            self.sequence += len(pairs)
        self.seen["compressed batches"] += codec != Codec.NONE
        rows = [(base_offset + slot, timestamp, key, value) for slot, (key, value) in enumerate(pairs)]
        self.batches.append(Batch(rows[-1][0], rows))

    def roll(self, _: None) -> None:
        self.log.roll(NOW)

    def clean(self, how: tuple[int, int, float]) -> None:
        map_bytes, passed_ms, share = how
        self.now_ms += passed_ms
        bound = int(self.log.log_end_offset * (0.5 + share)) if share < 0.3 else self.log.log_end_offset
        self.log.config = COMPACTING
        segments = len(self.log.segments)
        before, self.recorded = (
            self.recorded,
            clean(self.log, self.recorded, now_ms=self.now_ms, map_bytes=map_bytes, upper_bound=bound),
        )
        self.log.config = APPENDING
        if self.recorded == before:
            return
        assert self.recorded <= bound
        assert self.recorded <= self.log.segments[-1].base_offset
        self.seen["rounds"] += 1
        self.seen["merged"] += len(self.log.segments) < segments
        self._compact_twin()

    def _compact_twin(self) -> None:
        clean_part = [batch for batch in self.batches if batch.last_offset < self.recorded]
        last = {key: offset for batch in clean_part for offset, _, key, _ in batch.rows}
        for batch in clean_part:
            expired = batch.horizon_ms is not None and batch.horizon_ms <= self.now_ms
            count = len(batch.rows)
            self.seen["expired"] += expired and any(value is None for _, _, _, value in batch.rows)
            batch.rows = [
                row
                for row in batch.rows
                if row[2] is not None and last[row[2]] == row[0] and not (expired and row[3] is None)
            ]
            self.seen["thinned"] += 0 < len(batch.rows) < count
            if batch.horizon_ms is None and any(value is None for _, _, _, value in batch.rows):
                batch.horizon_ms = self.now_ms + DELETE_RETENTION_MS

    def truncate(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + round((end - start) * max(share, 0.6))
        self.log.truncate_to(offset)
        self.is_cleaned_part_cut |= offset < self.recorded
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.recorded = min(self.recorded, self.log.log_end_offset)
        self._adopt_sequence()  # the last batch of the producer may be gone
        self.seen["truncated"] += offset < end

    def _adopt_sequence(self) -> None:
        producer = self.log._appender.producers.producers.get(7)
        self.sequence = producer.batches[-1].last_sequence + 1 if producer is not None else 0

    def trim(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.raise_log_start(start + round((end - start) * share * 0.3))

    def reopen(self, orderly: bool) -> None:
        start = self.log.log_start_offset
        if orderly:
            self.log.close()
        else:
            self.log.abandon()
        self.log = self._open(
            clean=orderly, recovery_point=self.log.recovery_point if orderly else 0, log_start_offset=start
        )
        if self.is_cleaned_part_cut:
            # Compaction keeps the last batch of the producer, which is cut, and not the one before. The open log still
            # knew that one from a snapshot. A broker does not cut a part that it has cleaned, because all replicas in
            # sync have it.
            self._adopt_sequence()
        self.seen["reopened"] += 1

    def check(self) -> None:
        start = self.log.log_start_offset
        expected = [row for batch in self.batches for row in batch.rows if row[0] >= start]
        found = records_of(self.log)
        assert [(record.offset, record.timestamp, record.key, record.value) for record, _ in found] == expected

    def check_look_ups(self) -> None:
        log = self.log
        assert_sound(log, gaps=True)
        records = records_of(log)
        for offset in range(log.log_start_offset, log.log_end_offset):
            after = [record for record, _ in records if record.offset >= offset]
            data = log.read(offset, 1)
            assert data, "a reader advances from any offset"
            if after:
                assert_first(log, offset, after[0].offset)
        for bound in (log.log_end_offset, (log.log_start_offset + log.log_end_offset) // 2):
            for target in range(NOW - 21, NOW + 22):
                assert log.offset_for_timestamp(target, bound) == first_at_or_after(records, target, bound)
            assert log.offset_of_max_timestamp(bound) == largest(records, bound)


def assert_first(log: Log, offset: int, expected: int) -> None:
    """Return the first record for a reader that begins at `offset`."""
    at = offset
    while True:
        data = log.read(at, 1)
        for position, header in iter_headers(data):
            for record in decode_records(data, position):
                if record.offset >= offset:
                    assert record.offset == expected
                    return
            at = header.next_offset


def test_exactly_the_last_value_of_each_key_remains_and_is_found() -> None:
    total: Counter[str] = Counter()

    @settings(max_examples=50)
    @given(_sequences)
    def holds(steps: list[tuple[str, object]]) -> None:
        with tempfile.TemporaryDirectory() as name:
            log_with_model = CompactedLogWithModel(Path(name))
            for verb, what in steps:
                getattr(log_with_model, verb)(what)
                log_with_model.check()
            log_with_model.check_look_ups()
            log_with_model.log.abandon()
            log_with_model.log = log_with_model._open(clean=False, log_start_offset=log_with_model.log.log_start_offset)
            log_with_model.check()
            log_with_model.check_look_ups()
            log_with_model.seen["several segments"] += len(log_with_model.log.segments) > 2
            log_with_model.seen["index entries"] += sum(
                len(segment.offset_index) for segment in log_with_model.log.segments
            )
            total.update(log_with_model.seen)

    holds()
    events = ("rounds", "merged", "thinned", "expired", "truncated", "reopened")
    for fact in (*events, "several segments", "index entries", "compressed batches"):
        assert total[fact] > 5, (fact, total)
