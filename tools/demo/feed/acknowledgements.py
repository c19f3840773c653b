"""Records the acknowledgements and their times, from which the failover gap is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_BUCKET_NS = 10_000_000
_REMEMBERED_BUCKETS = 200
_SECOND_BUCKETS = 1_000_000_000 // _BUCKET_NS


class Acknowledgements:
    """Counts outcomes. One thread writes at a time and any thread reads, because every field only grows.

    acked, failed   numbers of acknowledged and of failed records
    first_error     the error of the first failed record; None if there is none
    by_partition    number of acknowledged records of each partition
    ends            the offset after the largest acknowledged one of each partition; 0 before the first
    """

    def __init__(self, partitions: int, now_ns: Callable[[], int]) -> None:
        self.acked = 0
        self.failed = 0
        self.first_error: Exception | None = None
        self.by_partition = [0] * partitions
        self.ends = [0] * partitions
        self._now_ns = now_ns
        self._recent: deque[list[int]] = deque([[0, 0]], _REMEMBERED_BUCKETS)
        self._watched_since_ns: int | None = None
        self._first_after: dict[int, int] = {}

    def succeeded(self, partition: int, offset: int, sent_ns: int) -> None:
        now_ns = self._now_ns()
        self.acked += 1
        self.by_partition[partition] += 1
        self.ends[partition] = max(self.ends[partition], offset + 1)
        latest = self._recent[-1]
        bucket = now_ns // _BUCKET_NS
        if latest[0] == bucket:
            latest[1] += 1
        else:
            self._recent.append([bucket, 1])
        since_ns = self._watched_since_ns
        if since_ns is not None and sent_ns >= since_ns and partition not in self._first_after:
            self._first_after[partition] = now_ns

    def failed_with(self, error: Exception) -> None:
        self.failed += 1
        self.first_error = self.first_error or error

    def in_second_before(self, moment_ns: int) -> int:
        """Return the number of acknowledgements in the last second before `moment_ns`, which is at most a second ago.

        The second is rounded to 10 ms.
        """
        last = moment_ns // _BUCKET_NS
        return sum(count for bucket, count in list(self._recent) if last - _SECOND_BUCKETS <= bucket < last)

    def watch(self, since_ns: int) -> None:
        """Remember, from now on, each partition's first acknowledgement of a record that was sent after `since_ns`.

        An answer that a dead broker had already written can still arrive. It cannot answer a later record.
        """
        self._first_after = {}
        self._watched_since_ns = since_ns

    def first_after_ns(self, partition: int) -> int | None:
        """Return the time (ns) of the acknowledgement that `watch` remembers for a partition; None if none came yet."""
        return self._first_after.get(partition)
