"""The metrics of a broker's replicas: sums over all replicas, and series for single partitions on request.

A broker may have ten thousand replicas. A scrape of five series for each would take megabytes every few seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cluster.replication.partition import UNKNOWN_OFFSET
from node.observability.metric_families import Family, single
from node.replication.replica import Replica

#: The largest number of replicas with series of their own in one answer.
MAX_SINGLE_REPLICAS = 1000


class ReplicaSums:
    """Sums over all replicas of a broker."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lag_sum: Counter[int] = Counter()
        self._lag_max: dict[int, int] = {}
        self._unheard: Counter[int] = Counter()

    def add(self, replica: Replica) -> None:
        """Add one replica of this broker; the caller adds each replica once."""
        partition = replica.partition
        self._counts["all"] += 1
        self._counts["offline"] += replica.offline
        if partition.is_leader:
            self._counts["led"] += 1
            self._counts["under replicated"] += len(partition.isr) < len(partition.replicas)
            self._counts["under min isr"] += not partition.is_at_least_min_isr
            for follower, lag in _lags(replica):
                if lag is None:
                    self._unheard[follower] += 1
                else:
                    self._lag_sum[follower] += lag
                    self._lag_max[follower] = max(lag, self._lag_max.get(follower, 0))

    def families(self) -> list[Family]:
        """Return the sums over all replicas that were added."""
        counts, followers = self._counts, sorted(self._lag_sum.keys() | self._unheard.keys())
        most = Family(
            "tidelog_follower_lag_records_max", "the largest lag among the partitions led here", labels=("follower",)
        )
        total = Family(
            "tidelog_follower_lag_records", "the sum of the lags of all partitions led here", labels=("follower",)
        )
        unheard = Family(
            "tidelog_follower_unheard_partitions",
            "partitions led here that the follower has not fetched in this leader epoch",
            labels=("follower",),
        )
        for follower in followers:
            most.add(self._lag_max.get(follower, 0), follower)
            total.add(self._lag_sum[follower], follower)
            unheard.add(self._unheard[follower], follower)
        return [
            single("tidelog_partitions", "replicas on this broker", counts["all"]),
            single("tidelog_leaders", "partitions that this broker leads", counts["led"]),
            single(
                "tidelog_under_replicated_partitions",
                "partitions led here with fewer in-sync replicas than replicas",
                counts["under replicated"],
            ),
            single(
                "tidelog_under_min_isr_partitions",
                "partitions led here with fewer in-sync replicas than min.insync.replicas, so that acks=all is refused",
                counts["under min isr"],
            ),
            single("tidelog_offline_replicas", "replicas on a disk that has failed", counts["offline"]),
            *(most, total, unheard),
        ]


class PartitionSeries:
    """The series of single replicas, of the first MAX_SINGLE_REPLICAS that are added."""

    def __init__(self) -> None:
        label = ("topic", "partition")
        self._added = 0
        self._starts = Family("tidelog_partition_log_start_offset", "first offset that can be read", labels=label)
        self._ends = Family(
            "tidelog_partition_log_end_offset", "offset of the next record of this replica", labels=label
        )
        self._marks = Family("tidelog_partition_high_watermark", "high watermark that this replica knows", labels=label)
        self._bytes = Family("tidelog_partition_log_bytes", "bytes of this replica's log", labels=label)
        self._lags = Family(
            "tidelog_partition_follower_lag_records",
            "records that a follower is behind, for partitions led here",
            labels=(*label, "follower"),
        )

    def add(self, replica: Replica, size_bytes: int | None) -> None:
        """Add one replica of this broker; `size_bytes` is the size of its log, or None if the log is offline."""
        self._added += 1
        if self._added > MAX_SINGLE_REPLICAS:
            return
        tp = replica.topic_partition
        self._starts.add(replica.log.log_start_offset, *tp)
        self._ends.add(replica.log.log_end_offset, *tp)
        self._marks.add(replica.partition.high_watermark, *tp)
        if size_bytes is not None:
            self._bytes.add(size_bytes, *tp)
        for follower, lag in _lags(replica):
            if lag is not None:
                self._lags.add(lag, *tp, follower)

    def families(self) -> list[Family]:
        """Return the series of the replicas that were added, and how many replicas have none."""
        return [
            single(
                "tidelog_partitions_left_out",
                "replicas after the first thousand, which have no series of their own",
                max(0, self._added - MAX_SINGLE_REPLICAS),
            ),
            *(self._starts, self._ends, self._marks, self._bytes, self._lags),
        ]


def _lags(replica: Replica) -> Iterator[tuple[int, int | None]]:
    """Yield each follower of a led partition with its lag in records, or None before its first fetch of the epoch."""
    if replica.partition.is_leader:
        end = replica.log.log_end_offset
        for follower, state in replica.partition.followers.items():
            known = state.log_end_offset
            yield follower, None if known == UNKNOWN_OFFSET else max(0, end - known)
