"""The numbers of a broker's replicas: series for each of the first thousand, and sums over all.

A thousand partitions are what an operator looks at one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cluster.replication.partition import UNKNOWN_OFFSET
from node.observability.metric_families import Family, single
from node.replication.replica import Replica
from tidelog.model import TopicPartition

#: Replicas with series of their own.
MOST_TOLD_APART = 1000


class ReplicaMetrics:
    """Sums over replicas, and the series of the first of them. `sizes` are the bytes of their logs."""

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
        self._marks = Family(
            "tidelog_partition_high_watermark", "up to where records are committed, as this replica knows", labels=label
        )
        self._bytes = Family("tidelog_partition_log_bytes", "of this replica", labels=label)
        self._lags = Family(
            "tidelog_partition_follower_lag_records",
            "how far a follower is behind, of a partition led here",
            labels=(*label, "follower"),
        )

    def add(self, replica: Replica) -> None:
        """One more replica of this broker, each once."""
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
        if self._counts["all"] > MOST_TOLD_APART:
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
        """Of all that were added."""
        counts, followers = self._counts, sorted(self._lag_sum.keys() | self._unheard.keys())
        most = Family(
            "tidelog_follower_lag_records_max", "the largest lag among the partitions led here", labels=("follower",)
        )
        total = Family(
            "tidelog_follower_lag_records", "the sum of the lags of all partitions led here", labels=("follower",)
        )
        unheard = Family(
            "tidelog_follower_unheard_partitions",
            "partitions led here of which it has fetched nothing in this epoch",
            labels=("follower",),
        )
        for follower in followers:
            most.add(self._lag_max.get(follower, 0), follower)
            total.add(self._lag_sum[follower], follower)
            unheard.add(self._unheard[follower], follower)
        left_out = max(0, counts["all"] - MOST_TOLD_APART)
        return [
            single("tidelog_partitions", "replicas on this broker", counts["all"]),
            single("tidelog_leaders", "partitions that it leads", counts["led"]),
            single(
                "tidelog_under_replicated_partitions",
                "led here, and not all replicas are in sync",
                counts["under replicated"],
            ),
            single(
                "tidelog_under_min_isr_partitions",
                "led here, and fewer are in sync than min.insync.replicas: acks=all is refused",
                counts["under min isr"],
            ),
            single("tidelog_offline_replicas", "replicas on a disk that failed", counts["offline"]),
            single(
                "tidelog_partitions_left_out",
                "replicas beyond the first thousand, which have no series of their own",
                left_out,
            ),
            *(most, total, unheard),
            *(self._starts, self._ends, self._marks, self._bytes, self._lags),
        ]
