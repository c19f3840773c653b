"""A log and a list of its records, through a random sequence of every operation on a log.

The list is the specification. It holds each record that was appended and not lost, and answers every question by a scan
of all records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import seed
from hypothesis import strategies as st

from storage.file_names import CLEANED_SUFFIX
from storage.log.log import Log
from storage.segments.segment import BatchSpan, Segment
from storage.segments.timestamp_search import TimestampOffset
from tests.storage.logs import NOW, UnsyncedFiles, batch, config, records_of
from tidelog.records import Codec, empty_batch, excerpt_batch, iter_headers, outline_batch, read_header

SMALL = {
    "segment_bytes": 450,
    "segment_ms": 10**15,
    "index_interval_bytes": 100,
    "segment_index_bytes": 60,
    "cleanup_policy": "compact,delete",
    "retention_ms": -1,
}

timestamps = st.one_of(
    st.integers(1, 12),  # many equal ones
    st.integers(NOW - 1000, NOW),
    st.sampled_from([1, NOW, NOW - 10**9]),
)
_fraction = st.floats(0, 1)
_seed = st.integers(0, 999)
_append = st.tuples(
    st.just("append"), st.tuples(st.lists(timestamps, min_size=1, max_size=4), st.sampled_from([Codec.NONE, *Codec]))
)
#: Steps that leave the same log open, so that a look-up may be between two of its own steps meanwhile.
changes_between_steps = st.one_of(
    _append,
    st.tuples(st.just("truncate"), _fraction),
    st.tuples(st.just("trim"), _fraction),
    st.tuples(st.just("retain"), _fraction),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("begin_epoch"), st.none()),
    st.tuples(st.just("compact"), st.tuples(_fraction, _seed)),
    st.tuples(st.just("compact"), st.tuples(_fraction, _seed)),
    st.tuples(st.just("follow"), st.tuples(st.lists(timestamps, min_size=1, max_size=4), st.integers(0, 5))),
    st.tuples(st.just("rebuild"), st.none()),
)
_steps = st.one_of(
    _append,
    _append,
    _append,
    changes_between_steps,
    changes_between_steps,
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("kill"), st.booleans()),
    st.tuples(st.just("damage"), st.tuples(st.sampled_from(["remove", "zero", "cut", "garbage"]), _seed)),
)
#: Most sequences begin with enough records for several segments.
step_sequences = st.tuples(st.lists(_append, min_size=6, max_size=25), st.lists(_steps, max_size=30)).map(
    lambda parts: [*parts[0], *parts[1]]
)


class Kept(NamedTuple):
    """One record; `last_offset` is that of its batch."""

    offset: int
    timestamp: int
    epoch: int
    last_offset: int


#: The most rounds of sequences in a test. The first round reaches all cases in nearly every run.
_ROUNDS = 20


class CaseCounts(Counter[str]):
    """Counts how often the sequences reached the cases that they are meant for."""

    def add(self, case: str, condition: object = True) -> None:
        self[case] += bool(condition)

    def run_until_reached(self, sequences: Callable[[CaseCounts], None], *cases: str, least: int) -> None:
        """Run sequences until each case has occurred that often, because they are random.

        Each round has its own seed. Without it, all rounds are the same where hypothesis runs without chance.
        """
        for number in range(_ROUNDS):
            seed(number)(sequences)(self)
            if all(self[each] >= least for each in cases):
                return
        raise AssertionError(f"too seldom: {self}")


class LogWithTwin:
    """`log` and the list; `run` applies a step to both."""

    def __init__(self, directory: Path, counts: CaseCounts) -> None:
        self._directory = directory
        self._counts = counts
        self._epoch = 0
        self.records: list[Kept] = []
        self.log = self._open(0, recovery_point=0, clean=True)

    def run(self, step: str, value: Any) -> None:
        getattr(self, f"_{step}")(value)

    # --- the answers of the list ---------------------------------------------------------------------

    def readable(self) -> list[tuple[int, int, int]]:
        """Return (offset, timestamp, epoch) of all readable records."""
        start = self.log.log_start_offset
        return [(r.offset, r.timestamp, r.epoch) for r in self.records if r.offset >= start]

    def first_at_or_after(self, timestamp: int, upper_bound: int) -> TimestampOffset | None:
        for offset, stamp, epoch in self.readable():
            if stamp >= timestamp and offset < upper_bound:
                return TimestampOffset(stamp, offset, epoch)
        return None

    def largest(self, upper_bound: int) -> TimestampOffset | None:
        below = [(stamp, -offset, epoch) for offset, stamp, epoch in self.readable() if offset < upper_bound]
        stamp, offset, epoch = max(below, default=(-1, 0, 0))
        return TimestampOffset(stamp, -offset, epoch) if below else None

    def in_log(self) -> list[tuple[int, int, int]]:
        """Return the same by reading the whole log."""
        return [(record.offset, record.timestamp, epoch) for record, epoch in records_of(self.log)]

    # --- steps for both ------------------------------------------------------------------------------

    def _append(self, value: tuple[list[int], Codec]) -> None:
        stamps, codec = value
        base = self.log.append_as_leader(batch(*stamps, key=b"k", codec=codec), self._epoch, NOW).base_offset
        self._keep(base, stamps)
        self._counts.add("a compressed batch", codec)

    def _follow(self, value: tuple[list[int], int]) -> None:
        """Append as a follower of a leader whose log was compacted: offsets are missing before the batch."""
        stamps, hole = value
        base = self.log.log_end_offset + hole
        self.log.append_as_follower(batch(*stamps, key=b"k", base_offset=base, leader_epoch=self._epoch))
        self._keep(base, stamps)

    def _keep(self, base: int, stamps: list[int]) -> None:
        last = base + len(stamps) - 1
        self.records += [Kept(base + delta, stamp, self._epoch, last) for delta, stamp in enumerate(stamps)]

    def _truncate(self, fraction: float) -> None:
        log = self.log
        offset = log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * fraction)
        log.truncate_to(offset)
        self.records = [record for record in self.records if record.last_offset < offset]
        assert log.log_end_offset <= max(offset, log.log_start_offset)
        if log.log_start_offset == log.log_end_offset:
            self.records = []

    def _trim(self, fraction: float) -> None:
        self.log.raise_log_start(int(self.log.log_end_offset * fraction))

    def _retain(self, fraction: float) -> None:
        log = self.log
        log.config = config(**SMALL, retention_bytes=int(log.size_bytes * fraction))
        retired = log.delete_old_segments(NOW, log.log_end_offset)
        self._counts.add("a segment deleted", retired)
        for segment in retired:
            segment.delete()
        self.records = [record for record in self.records if record.last_offset >= log.segment_base_offsets[0]]

    def _roll(self, _: None) -> None:
        self.log.roll(NOW)

    def _rebuild(self, _: None) -> None:
        """Rebuild the indexes, as a read does that has met damage."""
        for segment in self.log.segments:
            segment.rebuild_indexes()

    def _begin_epoch(self, _: None) -> None:
        self._epoch += 1
        self.log.assign_leader_epoch(self._epoch)

    def _reopen(self, _: None) -> None:
        self.log.close()
        self.log = self._open(self.log.log_start_offset, self.log.recovery_point, clean=True)

    def _kill(self, flushed: bool) -> None:
        if flushed:
            self.log.flush(rolled_only=True)
        self.log.abandon()
        self.log = self._open(self.log.log_start_offset, self.log.recovery_point, clean=False)

    def _damage(self, value: tuple[str, int]) -> None:
        self.log.close()
        self._counts.add("an index damaged", damage_index(self._directory, *value))
        self.log = self._open(self.log.log_start_offset, self.log.recovery_point, clean=True)

    def _compact(self, value: tuple[float, int]) -> None:
        """Remove some records of sealed segments, as if later ones had replaced them."""
        fraction, seed = value
        sealed = self.log.segments[:-1]
        old = sealed[int(len(sealed) * fraction) :][: 1 + seed % 3]
        if not old:
            return
        gone: set[int] = set()
        cleaned = compacted(old, UnsyncedFiles(), self._directory, lambda offset: offset * 7919 % 1000 > seed, gone)
        assert self.log.replace_segments(cleaned, old)
        for segment in old:
            segment.delete()
        self.records = [record for record in self.records if record.offset not in gone]
        self._counts.add("records compacted away", gone)

    def _open(self, log_start_offset: int, recovery_point: int, *, clean: bool) -> Log:
        log = Log.open(self._directory, config(**SMALL), UnsyncedFiles(), recovery_point=recovery_point, clean=clean)
        log.raise_log_start(log_start_offset)
        return log


def compacted(
    old: tuple[Segment, ...],
    files: UnsyncedFiles,
    directory: Path,
    survives: Callable[[int], bool],
    gone: set[int],
) -> Segment:
    """Return a cleaned segment with the remaining records of `old`.

    A batch without remaining records stays empty or is removed.

    The last batch stays, as with the real cleaner, so that recovery of an unflushed log finds no loss.
    """
    cleaned = Segment(directory, old[0].base_offset, files, 100, CLEANED_SUFFIX)
    for segment in old:
        data = segment.log.read(0, segment.size)
        for position, header in iter_headers(data):
            outline = outline_batch(data, header, position)
            kept = [slot for slot, offset in enumerate(outline.offsets) if survives(offset)]
            gone.update(offset for offset in outline.offsets if not survives(offset))
            if kept:
                part = excerpt_batch(outline, kept)
            elif header.base_offset % 2 or header.last_offset + 1 == old[-1].next_offset:
                part = empty_batch(header)
            else:
                continue
            stamp = read_header(part).max_timestamp
            cleaned.append((part,), (BatchSpan(header.last_offset, stamp, len(part)),))
    cleaned.seal()
    cleaned.flush()
    return cleaned


def damage_index(directory: Path, how: str, seed: int) -> bool:
    """Damage the file. Return whether it had any bytes."""
    files = sorted(directory.glob("*index"))
    path = files[seed % len(files)]
    data = path.read_bytes()
    if how == "remove":
        path.unlink()
    elif how == "zero":
        path.write_bytes(bytes(len(data) + 12 * (seed % 3)))
    elif how == "cut":
        path.write_bytes(data[: seed % (len(data) + 1)])
    else:
        spot = seed % (len(data) + 1)
        path.write_bytes(data[:spot] + bytes((b * 31 + seed) % 256 for b in data[spot : spot + 9]) + data[spot + 9 :])
    return bool(data)
