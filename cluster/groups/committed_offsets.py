"""The committed offsets of one group: its coordinator answers from them, and reads the group's records into them.

A commit is written first, and counts once its record is committed. The later record of two commits counts, in whichever
order they arrive. Pure: time is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.frozen_dataclass import frozen
from tidelog.groups.offsets_topic import Commit
from tidelog.model import TopicPartition


@frozen
class StoredCommit:
    """A commit, or None for a tombstone, with the offset of its record in the offsets topic."""

    commit: Commit | None
    record_offset: int


class CommittedOffsets:
    """The commits by partition. A tombstone is kept while writes are pending that may be older than the tombstone."""

    def __init__(self) -> None:
        self._commits: dict[TopicPartition, StoredCommit] = {}
        # The number of pending writes by partition. Such partitions do not expire.
        self._pending: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._commits or self._pending)

    @property
    def count(self) -> int:
        """Return the number of partitions with a commit or a kept tombstone."""
        return len(self._commits)

    def get(self, tp: TopicPartition) -> Commit | None:
        """Return the commit of this partition; None if there is none, or if it was deleted."""
        stored = self._commits.get(tp)
        return None if stored is None else stored.commit

    def all(self) -> dict[TopicPartition, Commit]:
        """Return the commits of all partitions that have one, ordered by partition."""
        return {tp: stored.commit for tp, stored in sorted(self._commits.items()) if stored.commit is not None}

    @property
    def topics(self) -> set[str]:
        """Return the topics with committed offsets."""
        return {tp.topic for tp, stored in self._commits.items() if stored.commit is not None}

    def pending_partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of these topics with a pending write, in order."""
        return sorted(tp for tp in self._pending if tp.topic in topics)

    def committed_below(self, ends: Mapping[str, int]) -> list[TopicPartition]:
        """Return, in order, the partitions of the topics in `ends` whose commit is older than the topic's offset there.

        A commit is older if its record in the offsets topic lies below that offset.
        """
        if not ends:
            return []
        return sorted(
            tp
            for tp, stored in self._commits.items()
            if stored.commit is not None and stored.record_offset < ends.get(tp.topic, 0)
        )

    # --- writes --------------------------------------------------------------------------------------

    def begin(self, tps: Iterable[TopicPartition]) -> None:
        """Note that commits or tombstones of these partitions are being written.

        `written` or `failed` must follow for commits. For tombstones `failed` must follow in any case, after `read` if
        they were written.
        """
        for tp in tps:
            self._pending[tp] = self._pending.get(tp, 0) + 1

    def written(self, commits: Mapping[TopicPartition, Commit], first_offset: int) -> None:
        """Apply these commits, which are in consecutive committed records from `first_offset`, and end their writes.

        A commit counts only if no later record of its partition was applied.
        """
        for record_offset, (tp, commit) in enumerate(commits.items(), first_offset):
            self.read(tp, commit, record_offset)
        self.failed(commits)

    def failed(self, tps: Iterable[TopicPartition]) -> None:
        """End the writes of these partitions; drop a kept tombstone when no write of its partition is pending."""
        for tp in tps:
            left = self._pending.pop(tp) - 1
            if left:
                self._pending[tp] = left
            elif tp in self._commits and self._commits[tp].commit is None:
                del self._commits[tp]

    def read(self, tp: TopicPartition, commit: Commit | None, record_offset: int) -> None:
        """Apply a committed record of the offsets topic; None: a tombstone. Ignore it if a later one was applied."""
        stored = self._commits.get(tp)
        if stored is not None and stored.record_offset > record_offset:
            return
        if commit is None and tp not in self._pending:
            self._commits.pop(tp, None)
        else:
            self._commits[tp] = StoredCommit(commit, record_offset)

    # --- expiry --------------------------------------------------------------------------------------

    def expired(
        self, now_ms: int, retention_ms: int, *, empty_since_ms: int | None, subscribed: Collection[str] | None
    ) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired (KIP-211), by the wall clock. Nothing is removed.

        Partitions of subscribed topics and with pending writes never expire.

        empty_since_ms   since when the group has had no members; None: it has some, or never had any
        subscribed       the topics that its members consume; None: unknown, so that no offset expires; empty: there are
                         no members
        """
        if subscribed is None:
            return []
        return [
            tp
            for tp, stored in self._commits.items()
            if stored.commit is not None
            and tp.topic not in subscribed
            and tp not in self._pending
            and _is_due(stored.commit, now_ms, retention_ms, empty_since_ms)
        ]


def _is_due(commit: Commit, now_ms: int, retention_ms: int, empty_since_ms: int | None) -> bool:
    """Return whether a commit has expired.

    A commit with an expiry time of its own (`expires_ms` of at least 0) expires then. Any other expires `retention_ms`
    after the commit, or after `empty_since_ms` if that is later.
    """
    if commit.expires_ms >= 0:
        return now_ms >= commit.expires_ms
    since_ms = commit.committed_ms if empty_since_ms is None else max(commit.committed_ms, empty_since_ms)
    return now_ms - since_ms >= retention_ms
