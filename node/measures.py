"""What a broker tells of itself as numbers, read from its state when somebody asks.

Nothing is counted on the way of a record but durations. Series for each partition are told while they are few: a
thousand partitions are what an operator looks at one by one, and more are told in sums.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from cluster.partition import UNKNOWN_OFFSET
from node.durations import Durations, RequestTimes
from node.identity import Identity
from node.metadata_cache import MetadataCache
from node.replica import Replica
from node.replicas import Replicas
from node.waiting import Waiting
from tidelog.errors import error_for
from tidelog.frozen import frozen
from tidelog.messages import ApiKey
from tidelog.model import TopicPartition

#: Replicas with series of their own.
MOST_TOLD_APART = 1000
#: Replicas that are looked at before other work gets a turn of the loop.
_TURN = 64


class Kind(Enum):
    """As Prometheus knows them."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@frozen
class Sample:
    """One series: its labels' values in the order of the family's labels."""

    labels: tuple[str, ...]
    value: float | Durations


@dataclass(slots=True)
class Family:
    """Series of one name. The name has no `_total`; durations are in seconds."""

    name: str
    meaning: str
    kind: Kind = Kind.GAUGE
    labels: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)

    def add(self, value: float | Durations, *labels: object) -> Family:
        """One more series; returns the family."""
        self.samples.append(Sample(tuple(map(str, labels)), value))
        return self


class Standing(Protocol):
    """What is needed of `node.session.Session`."""

    @property
    def cut_off(self) -> bool: ...
    @property
    def silence_ms(self) -> int: ...


class Seat(Protocol):
    """What is needed of `node.controller_shell.ControllerShell`."""

    @property
    def is_controller(self) -> bool: ...


class SizedLog(Protocol):
    """What is needed of `storage.log.Log`."""

    @property
    def size_bytes(self) -> int: ...


class SizedDirectory(Protocol):
    """What is needed of `storage.log_directory.LogDirectory`."""

    @property
    def path(self) -> Path: ...
    @property
    def logs(self) -> Mapping[TopicPartition, SizedLog]: ...


class Disks(Protocol):
    """What is needed of `storage.log_manager.LogManager`."""

    @property
    def directories(self) -> Iterable[SizedDirectory]: ...
    @property
    def failures(self) -> Mapping[Path, object]: ...


@dataclass(slots=True, kw_only=True)
class Measures:
    """Where the numbers come from. `doors` are the broker's endpoints by name."""

    identity: Identity
    metadata: MetadataCache
    replicas: Replicas
    waiting: Waiting
    session: Standing
    seat: Seat
    disks: Disks
    doors: Mapping[str, RequestTimes]
    why_not_ready: Callable[[], str | None]

    async def read(self) -> list[Family]:
        """All of them, as of now; other work gets its turns meanwhile."""
        sizes: dict[TopicPartition, int] = {}
        directories = Family("tidelog_log_directory_bytes", "of all logs in a directory", labels=("directory",))
        for directory in self.disks.directories:
            sizes_here = {}
            for count, (tp, log) in enumerate(list(directory.logs.items()), 1):
                sizes_here[tp] = log.size_bytes
                if count % _TURN == 0:
                    await asyncio.sleep(0)
            directories.add(sum(sizes_here.values()), directory.path)
            sizes |= sizes_here
        table = _ReplicaTable(sizes)
        for count, replica in enumerate(list(self.replicas), 1):
            table.add(replica)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return [*self._of_the_broker(), directories, *table.families(), *self._of_waiting(), *self._of_requests()]

    def _of_the_broker(self) -> list[Family]:
        session, leads = self.session, self.seat.is_controller
        live = self.metadata.brokers
        unled = sum(state.leader not in live for state in self.metadata.partitions) if leads else 0
        return [
            _one(
                "tidelog_ready", "1: the broker is registered and serves all its replicas", self.why_not_ready() is None
            ),
            _one("tidelog_registered", "1: the broker is registered in ZooKeeper", self.identity.broker_epoch >= 0),
            _one(
                "tidelog_zookeeper_connected",
                "0: ZooKeeper has not been heard of for a session timeout",
                not session.cut_off,
            ),
            _one("tidelog_zookeeper_silence_seconds", "since ZooKeeper confirmed something", session.silence_ms / 1000),
            _one("tidelog_active_controller", "1: this broker is the controller", leads),
            _one("tidelog_controller_epoch", "of the last controller that was heard", self.metadata.controller_epoch),
            _one("tidelog_live_brokers", "as this broker knows them", len(live)),
            _one(
                "tidelog_offline_partitions",
                "of the cluster, without a leader; told by the controller, others say 0",
                unled,
            ),
            _one("tidelog_offline_log_directories", "log directories whose disk failed", len(self.disks.failures)),
            _one(
                "tidelog_isr_shrinks",
                "ISRs that this broker wrote with fewer members",
                self.replicas.state_changes.shrinks,
                Kind.COUNTER,
            ),
            _one(
                "tidelog_isr_expansions",
                "ISRs that it wrote with more",
                self.replicas.state_changes.expansions,
                Kind.COUNTER,
            ),
        ]

    def _of_waiting(self) -> list[Family]:
        label = ("purgatory",)
        sizes = Family("tidelog_purgatory_size", "requests that wait for replication or for data", labels=label)
        waits = Family(
            "tidelog_purgatory_wait_seconds", "how long those waited that are answered", Kind.HISTOGRAM, label
        )
        expired = Family(
            "tidelog_purgatory_expired", "requests whose time was over while they waited", Kind.COUNTER, label
        )
        waiting = self.waiting
        purgatories = (
            ("produce", waiting.produces),
            ("consumer_fetch", waiting.consumer_fetches),
            ("follower_fetch", waiting.follower_fetches),
        )
        for name, purgatory in purgatories:
            sizes.add(len(purgatory), name)
            waits.add(purgatory.waits, name)
            expired.add(purgatory.expired, name)
        return [sizes, waits, expired]

    def _of_requests(self) -> list[Family]:
        times = Family(
            "tidelog_request_seconds",
            "from the arrival of a request to its answer, waits included",
            Kind.HISTOGRAM,
            ("door", "api"),
        )
        refused = Family(
            "tidelog_requests_refused", "requests that were refused as a whole", Kind.COUNTER, ("door", "error")
        )
        for door, told in self.doors.items():
            for api_key, durations in sorted(told.by_api.items()):
                times.add(durations, door, ApiKey(api_key).name)
            for code, count in sorted(told.refused.items()):
                refused.add(count, door, type(error_for(code)).__name__)
        return [times, refused]


class _ReplicaTable:
    """Sums over replicas, and the series of the first of them."""

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
        partition = replica.partition
        self._counts["all"] += 1
        self._counts["offline"] += replica.offline
        lags = {}
        end = replica.log.log_end_offset
        if partition.is_leader:
            self._counts["led"] += 1
            self._counts["under replicated"] += len(partition.isr) < len(partition.replicas)
            self._counts["under min isr"] += not partition.has_enough_in_sync
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
            _one("tidelog_partitions", "replicas on this broker", counts["all"]),
            _one("tidelog_leaders", "partitions that it leads", counts["led"]),
            _one(
                "tidelog_under_replicated_partitions",
                "led here, and not all replicas are in sync",
                counts["under replicated"],
            ),
            _one(
                "tidelog_under_min_isr_partitions",
                "led here, and fewer are in sync than min.insync.replicas: acks=all is refused",
                counts["under min isr"],
            ),
            _one("tidelog_offline_replicas", "replicas on a disk that failed", counts["offline"]),
            _one(
                "tidelog_partitions_left_out",
                "replicas beyond the first thousand, which have no series of their own",
                left_out,
            ),
            *(most, total, unheard),
            *(self._starts, self._ends, self._marks, self._bytes, self._lags),
        ]


def _one(name: str, meaning: str, value: float, kind: Kind = Kind.GAUGE) -> Family:
    return Family(name, meaning, kind).add(value)
