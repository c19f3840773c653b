"""What a broker tells of itself as numbers, read from its state when somebody asks.

Nothing is counted on the way of a record but durations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node.groups.service import CoordinatorService
from node.identity import Identity
from node.metadata_cache import MetadataCache
from node.observability.group_metrics import group_families
from node.observability.metric_families import Family, Kind, single
from node.observability.replica_metrics import ReplicaMetrics
from node.purgatory.purgatories import Purgatories
from node.replication.replica_manager import ReplicaManager
from node.runtime.latency_histogram import RequestTimes
from tidelog.errors import error_for
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ApiKey

#: Replicas that are looked at before other work gets a turn of the loop.
_TURN = 64


class Standing(Protocol):
    """What is needed of `node.zookeeper_session.Session`."""

    @property
    def cut_off(self) -> bool: ...
    @property
    def silence_ms(self) -> int: ...


class Seat(Protocol):
    """What is needed of `node.controller.controller_elector.ControllerElector`."""

    @property
    def is_controller(self) -> bool: ...


class SizedLog(Protocol):
    """What is needed of `storage.log.log.Log`."""

    @property
    def size_bytes(self) -> int: ...


class SizedDirectory(Protocol):
    """What is needed of `storage.directory.log_directory.LogDirectory`."""

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
class Metrics:
    """Where the numbers come from. `doors` are the broker's endpoints by name."""

    identity: Identity
    metadata: MetadataCache
    replicas: ReplicaManager
    waiting: Purgatories
    groups: CoordinatorService
    session: Standing
    lease: Seat
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
        table = ReplicaMetrics(sizes)
        for count, replica in enumerate(list(self.replicas), 1):
            table.add(replica)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return [
            *self._of_the_broker(),
            directories,
            *table.families(),
            *self._of_waiting(),
            *await group_families(self.groups),
            *self._of_requests(),
        ]

    def _of_the_broker(self) -> list[Family]:
        session, leads = self.session, self.lease.is_controller
        live = self.metadata.brokers
        unled = sum(state.leader not in live for state in self.metadata.partitions) if leads else 0
        return [
            single(
                "tidelog_ready", "1: the broker is registered and serves all its replicas", self.why_not_ready() is None
            ),
            single("tidelog_registered", "1: the broker is registered in ZooKeeper", self.identity.broker_epoch >= 0),
            single(
                "tidelog_zookeeper_connected",
                "0: ZooKeeper has not been heard of for a session timeout",
                not session.cut_off,
            ),
            single(
                "tidelog_zookeeper_silence_seconds", "since ZooKeeper confirmed something", session.silence_ms / 1000
            ),
            single("tidelog_active_controller", "1: this broker is the controller", leads),
            single("tidelog_controller_epoch", "of the last controller that was heard", self.metadata.controller_epoch),
            single("tidelog_live_brokers", "as this broker knows them", len(live)),
            single(
                "tidelog_offline_partitions",
                "of the cluster, without a leader; told by the controller, others say 0",
                unled,
            ),
            single("tidelog_offline_log_directories", "log directories whose disk failed", len(self.disks.failures)),
            single(
                "tidelog_isr_shrinks",
                "ISRs that this broker wrote with fewer members",
                self.replicas.isr_updates.shrinks,
                Kind.COUNTER,
            ),
            single(
                "tidelog_isr_expansions",
                "ISRs that it wrote with more",
                self.replicas.isr_updates.expansions,
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
