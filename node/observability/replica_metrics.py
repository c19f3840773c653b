"""The metrics of a broker's replicas: series for each of the first thousand replicas, and sums over all replicas.

An operator does not look at more than a thousand partitions one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cluster.replication.partition import UNKNOWN_OFFSET
from node.observability.metric_families import Family, single
from node.replication.replica import Replica
from tidelog.model import TopicPartition

#: The largest number of replicas with series of their own.
MAX_SINGLE_REPLICAS = 1000


class ReplicaMetrics:
    """Sums over all replicas, and series of the first MAX_SINGLE_REPLICAS. `sizes` has the bytes of each log."""

    def __init__(self, sizes: Mapping[TopicPartition, int]) -> None:
        self._sizes = sizes
        self._counts: Counter[str] = Counter()
        self._lag_sum: Counter[int] = Counter()
        self._lag_max: dict[int, int] = {}
        self._unheard: Counter[int] = Counter()
        label = ("topic", "partition")
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

    def add(self, replica: Replica) -> None:
        """Add one replica of this broker; the caller adds each replica once."""
        partition = replica.partition
        self._counts["all"] += 1
        self._counts["offline"] += replica.offline
        lags = {}
        end = replica.log.log_end_offset
        if partition.is_leader:
            self._counts["led"] += 1
            self._counts["under replicated"] += len(partition.isr) < len(partition.replicas)
            self._counts["under min isr"] += not partition.is_at_least_min_isr
            for follower, state in partition.followers.items():
                if state.log_end_offset == UNKNOWN_OFFSET:
                    self._unheard[follower] += 1
                    continue
                lag = lags[follower] = max(0, end - state.log_end_offset)
                self._lag_sum[follower] += lag
                self._lag_max[follower] = max(lag, self._lag_max.get(follower, 0))
        if self._counts["all"] > MAX_SINGLE_REPLICAS:
            return
        tp = replica.topic_partition
        self._starts.add(replica.log.log_start_offset, *tp)
        self._ends.add(end, *tp)
        self._marks.add(partition.high_watermark, *tp)
        if tp in self._sizes:
            self._bytes.add(self._sizes[tp], *tp)
        for follower, lag in lags.items():
            self._lags.add(lag, *tp, follower)

    def families(self) -> list[Family]:
        """Return the sums over all replicas that were added, and the series of the first ones."""
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
        left_out = max(0, counts["all"] - MAX_SINGLE_REPLICAS)
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
            single(
                "tidelog_partitions_left_out",
                "replicas after the first thousand, which have no series of their own",
                left_out,
            ),
            *(most, total, unheard),
            *(self._starts, self._ends, self._marks, self._bytes, self._lags),
        ]
