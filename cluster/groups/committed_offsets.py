"""What one group has committed: the register that its coordinator answers from, and its records are read into.

A commit is written first and counts when it is committed itself; of two the one that was written later counts,
whichever is heard of first. Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.frozen_dataclass import frozen
from tidelog.groups.offsets_topic import Commit
from tidelog.model import TopicPartition


@frozen
class Placed:
    """A commit, or None for a tombstone, and the offset of its record."""

    commit: Commit | None
    record_offset: int


class Offsets:
    """By partition. A tombstone is remembered while commits are under way that may be older than it is."""

    def __init__(self) -> None:
        self._placed: dict[TopicPartition, Placed] = {}
        # Writes under way; their partitions do not expire meanwhile.
        self._pending: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._placed or self._pending)

    @property
    def count(self) -> int:
        """Partitions that have one, and those few whose tombstone is remembered."""
        return len(self._placed)

    def get(self, tp: TopicPartition) -> Commit | None:
        """The committed offset; None where there is none."""
        placed = self._placed.get(tp)
        return None if placed is None else placed.commit

    def all(self) -> dict[TopicPartition, Commit]:
        """Of every partition that has one."""
        return {tp: placed.commit for tp, placed in sorted(self._placed.items()) if placed.commit is not None}

    @property
    def topics(self) -> set[str]:
        """Of which it has any."""
        return {tp.topic for tp, placed in self._placed.items() if placed.commit is not None}

    def under_way(self, topics: Collection[str]) -> list[TopicPartition]:
        """Partitions of these topics of which something is being written."""
        return sorted(tp for tp in self._pending if tp.topic in topics)

    def committed_below(self, ends: Mapping[str, int]) -> list[TopicPartition]:
        """Partitions of these topics whose commit stands below the topic's offset here."""
        if not ends:
            return []
        return sorted(
            tp
            for tp, placed in self._placed.items()
            if placed.commit is not None and placed.record_offset < ends.get(tp.topic, 0)
        )

    # --- writing -------------------------------------------------------------------------------------

    def begin(self, tps: Iterable[TopicPartition]) -> None:
        """Commits or tombstones of these are being written."""
        for tp in tps:
            self._pending[tp] = self._pending.get(tp, 0) + 1

    def written(self, commits: Mapping[TopicPartition, Commit], first_offset: int) -> None:
        """They are committed, in records one after the other from `first_offset`."""
        for record_offset, (tp, commit) in enumerate(commits.items(), first_offset):
            self.read(tp, commit, record_offset)
        self.failed(commits)

    def failed(self, tps: Iterable[TopicPartition]) -> None:
        """They are not under way any more."""
        for tp in tps:
            left = self._pending.pop(tp) - 1
            if left:
                self._pending[tp] = left
            elif tp in self._placed and self._placed[tp].commit is None:
                del self._placed[tp]

    def read(self, tp: TopicPartition, commit: Commit | None, record_offset: int) -> None:
        """A committed record of the topic; None: a tombstone."""
        placed = self._placed.get(tp)
        if placed is not None and placed.record_offset > record_offset:
            return
        if commit is None and tp not in self._pending:
            self._placed.pop(tp, None)
        else:
            self._placed[tp] = Placed(commit, record_offset)

    # --- expiry --------------------------------------------------------------------------------------

    def expired(
        self, now_ms: int, retention_ms: int, *, empty_since_ms: int | None, subscribed: Collection[str] | None
    ) -> list[TopicPartition]:
        """Whose offsets nobody will ask for any more (KIP-211), by the wall clock.

        empty_since_ms   the group had members and has none since then; None: it has some, or never had any
        subscribed       what its members consume; None: they do not say, and everything stays; empty: it has none
        """
        if subscribed is None:
            return []
        return [
            tp
            for tp, placed in self._placed.items()
            if placed.commit is not None
            and tp.topic not in subscribed
            and tp not in self._pending
            and _is_due(placed.commit, now_ms, retention_ms, empty_since_ms)
        ]


def _is_due(commit: Commit, now_ms: int, retention_ms: int, empty_since_ms: int | None) -> bool:
    if commit.expires_ms >= 0:
        return now_ms >= commit.expires_ms
    since_ms = commit.committed_ms if empty_since_ms is None else max(commit.committed_ms, empty_since_ms)
    return now_ms - since_ms >= retention_ms
