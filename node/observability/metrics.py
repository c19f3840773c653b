"""The metrics of a broker, read from its state at each scrape.

The path of a record only measures durations, and counts nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node.groups.service import CoordinatorService
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnections
from node.net.identity import Identity
from node.observability.client_metrics import client_families
from node.observability.group_metrics import group_families
from node.observability.metric_families import Family, Kind, single
from node.observability.replica_metrics import PartitionSeries, ReplicaSums
from node.replication.purgatories import Purgatories
from node.replication.replica_manager import ReplicaManager
from node.runtime.latency_histogram import RequestTimes
from tidelog.errors import error_for
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ApiKey

#: Replicas that are read before other work runs on the loop.
_REPLICAS_AT_ONCE = 64


class SessionStatus(Protocol):
    """The part of `node.process.zookeeper_session.ZooKeeperSession` that this module needs."""

    @property
    def cut_off(self) -> bool: ...
    @property
    def silence_ms(self) -> int: ...


class ControllerStatus(Protocol):
    """The part of `node.controller.controller_elector.ControllerElector` that this module needs."""

    @property
    def is_controller(self) -> bool: ...


class SizedLog(Protocol):
    """The part of `storage.log.log.Log` that this module needs."""

    @property
    def size_bytes(self) -> int: ...


class SizedDirectory(Protocol):
    """The part of `storage.directory.log_directory.LogDirectory` that this module needs."""

    @property
    def path(self) -> Path: ...
    @property
    def logs(self) -> Mapping[TopicPartition, SizedLog]: ...


class Disks(Protocol):
    """The part of `storage.log_manager.LogManager` that this module needs."""

    @property
    def directories(self) -> Iterable[SizedDirectory]: ...
    @property
    def failures(self) -> Mapping[Path, object]: ...


@dataclass(slots=True, kw_only=True)
class Metrics:
    """The parts of a broker whose state becomes metrics.

    request_times   the durations and refusals of each listener's requests, by the listener's name
    """

    identity: Identity
    metadata: MetadataCache
    replicas: ReplicaManager
    waiting: Purgatories
    groups: CoordinatorService
    session: SessionStatus
    elector: ControllerStatus
    disks: Disks
    request_times: Mapping[str, RequestTimes]
    clients: ClientConnections
    why_not_ready: Callable[[], str | None]

    async def read(self) -> list[Family]:
        """Return the current values of all metrics of the broker as a whole. Other work runs on the loop in between."""
        directories = Family("tidelog_log_directory_bytes", "bytes of all logs in a directory", labels=("directory",))
        for directory in self.disks.directories:
            size = 0
            for count, log in enumerate(list(directory.logs.values()), 1):
                size += log.size_bytes
                if count % _REPLICAS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            directories.add(size, directory.path)
        sums = ReplicaSums()
        for count, replica in enumerate(list(self.replicas), 1):
            sums.add(replica)
            if count % _REPLICAS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return [
            *self._broker_families(),
            directories,
            *sums.families(),
            *self._purgatory_families(),
            *await group_families(self.groups),
            *self._request_families(),
            *await client_families(self.clients),
        ]

    async def read_partitions(self, topic: str = "") -> list[Family]:
        """Return the current values of the series of single replicas, of one topic or of all ("").

        Other work runs on the loop in between.
        """
        series = PartitionSeries()
        for count, replica in enumerate(list(self.replicas), 1):
            tp = replica.topic_partition
            if topic in ("", tp.topic):
                sizes = (log.size_bytes for each in self.disks.directories if (log := each.logs.get(tp)) is not None)
                series.add(replica, next(sizes, None))
            if count % _REPLICAS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return series.families()

    def _broker_families(self) -> list[Family]:
        session, is_controller = self.session, self.elector.is_controller
        live = self.metadata.brokers
        unled = sum(state.leader not in live for state in self.metadata.partitions) if is_controller else 0
        return [
            single(
                "tidelog_ready", "1: the broker is registered and serves all its replicas", self.why_not_ready() is None
            ),
            single("tidelog_registered", "1: the broker is registered in ZooKeeper", self.identity.broker_epoch >= 0),
            single(
                "tidelog_zookeeper_connected",
                "0: ZooKeeper has confirmed no request for a session timeout",
                not session.cut_off,
            ),
            single(
                "tidelog_zookeeper_silence_seconds",
                "time since ZooKeeper confirmed a request",
                session.silence_ms / 1000,
            ),
            single("tidelog_active_controller", "1: this broker is the controller", is_controller),
            single(
                "tidelog_controller_epoch",
                "latest controller epoch that this broker has seen",
                self.metadata.controller_epoch,
            ),
            single("tidelog_live_brokers", "live brokers that this broker knows", len(live)),
            single(
                "tidelog_offline_partitions",
                "partitions of the cluster without a leader; 0 on brokers that are not the controller",
                unled,
            ),
            single(
                "tidelog_offline_log_directories", "log directories whose disk has failed", len(self.disks.failures)
            ),
            single(
                "tidelog_isr_shrinks",
                "ISR changes of this broker that removed members",
                self.replicas.isr_updates.shrinks,
                Kind.COUNTER,
            ),
            single(
                "tidelog_isr_expansions",
                "ISR changes of this broker that added members",
                self.replicas.isr_updates.expansions,
                Kind.COUNTER,
            ),
        ]

    def _purgatory_families(self) -> list[Family]:
        label = ("purgatory",)
        sizes = Family("tidelog_purgatory_size", "requests that wait for replication or for data", labels=label)
        waits = Family(
            "tidelog_purgatory_wait_seconds", "how long answered requests waited there", Kind.HISTOGRAM, label
        )
        expired = Family(
            "tidelog_purgatory_expired", "requests whose deadline passed while they waited", Kind.COUNTER, label
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

    def _request_families(self) -> list[Family]:
        times = Family(
            "tidelog_request_seconds",
            "time from the arrival of a request to its response, waits included",
            Kind.HISTOGRAM,
            ("door", "api"),
        )
        refused = Family(
            "tidelog_requests_refused", "requests that were refused as a whole", Kind.COUNTER, ("door", "error")
        )
        for listener, requests in self.request_times.items():
            for api_key, durations in sorted(requests.by_api.items()):
                times.add(durations, listener, _api_name(api_key))
            for code, count in sorted(requests.refused.items()):
                refused.add(count, listener, type(error_for(code)).__name__)
        return [times, refused]


#: APIs of Kafka's protocol that Tidelog's own does not have.
_KAFKA_APIS = {60: "DESCRIBE_CLUSTER", 75: "DESCRIBE_TOPIC_PARTITIONS"}


def _api_name(api_key: int) -> str:
    if api_key in ApiKey.__members__.values():
        return ApiKey(api_key).name
    return _KAFKA_APIS.get(api_key, f"API_{api_key}")
