"""Tidelog: a replicated, partitioned, durable log with Kafka's semantics.

    with Producer() as producer:
        metadata = producer.send("events", b"value", key=b"key").get(timeout=10)

    with Consumer() as consumer:
        partition = TopicPartition("events", 0)
        found = consumer.offsets_for_times({partition: datetime(2024, 5, 1, tzinfo=UTC)})[partition]

Without bootstrap servers clients use TIDELOG_BOOTSTRAP_SERVERS, else the cluster of this user's last `tidelog up`.
`tidelog.aio` has the same clients for asyncio programs, `tidelog.errors` has the error classes of Tidelog.

Names are imported when they are first used, so that a command that only looks at processes does not load the clients.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.arrow.scan import Scan, scan
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.admin_results import ClusterDescription, PartitionDescription, TopicDescription
    from tidelog.client.admin.config_requests import ConfigResource
    from tidelog.client.consumer.consumer import Consumer
    from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchedBatches
    from tidelog.client.consumer.seek_to_time import OlderRecords, StartingPoint, StartReason
    from tidelog.client.metrics.snapshot import Metrics
    from tidelog.client.producer.producer import Producer
    from tidelog.client.producer.record_future import RecordFuture, RecordRun, RunPart
    from tidelog.errors import TidelogError
    from tidelog.groups.descriptions import (
        ConsumerGroupDescription,
        ConsumerGroupListing,
        ConsumerGroupListings,
        ConsumerGroupState,
        MemberDescription,
        MemberToRemove,
    )
    from tidelog.groups.lag import PartitionLag
    from tidelog.groups.membership.rebalance_listener import ConsumerRebalanceListener
    from tidelog.groups.reset import (
        OffsetReset,
        ShiftBy,
        ToCurrent,
        ToEarliest,
        ToLatest,
        ToOffset,
        ToTime,
    )
    from tidelog.model import (
        ConsumerGroupMetadata,
        Endpoint,
        NoOffset,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetOutcome,
        RecordMetadata,
        TopicPartition,
    )
    from tidelog.protocol.admin_messages import ConfigChange, ConfigEntry, ConfigOp, ConfigResourceType, ConfigSource
    from tidelog.protocol.messages import NewTopic
    from tidelog.protocol.partition_messages import ElectionType, NewPartitions, PartitionReassignment

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupListings",
    "ConsumerGroupMetadata",
    "ConsumerGroupState",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ElectionType",
    "Endpoint",
    "FetchedBatches",
    "MemberDescription",
    "MemberToRemove",
    "Metrics",
    "NewPartitions",
    "NewTopic",
    "NoOffset",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutcome",
    "OffsetReset",
    "OlderRecords",
    "PartitionDescription",
    "PartitionLag",
    "PartitionReassignment",
    "Producer",
    "RecordFuture",
    "RecordMetadata",
    "RecordRun",
    "RunPart",
    "Scan",
    "ShiftBy",
    "StartReason",
    "StartingPoint",
    "TidelogError",
    "ToCurrent",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "ToTime",
    "TopicDescription",
    "TopicPartition",
    "__version__",
    "scan",
]

_MODULES = {
    "Admin": "tidelog.client.admin.admin",
    "ClusterDescription": "tidelog.client.admin.admin_results",
    "ConfigChange": "tidelog.protocol.admin_messages",
    "ConfigEntry": "tidelog.protocol.admin_messages",
    "ConfigOp": "tidelog.protocol.admin_messages",
    "ConfigResource": "tidelog.client.admin.config_requests",
    "ConfigResourceType": "tidelog.protocol.admin_messages",
    "ConfigSource": "tidelog.protocol.admin_messages",
    "Consumer": "tidelog.client.consumer.consumer",
    "ConsumerGroupDescription": "tidelog.groups.descriptions",
    "ConsumerGroupListing": "tidelog.groups.descriptions",
    "ConsumerGroupListings": "tidelog.groups.descriptions",
    "ConsumerGroupMetadata": "tidelog.model",
    "ConsumerGroupState": "tidelog.groups.descriptions",
    "ConsumerRebalanceListener": "tidelog.groups.membership.rebalance_listener",
    "ConsumerRecord": "tidelog.client.consumer.fetching.fetch_buffer",
    "ElectionType": "tidelog.protocol.partition_messages",
    "Endpoint": "tidelog.model",
    "FetchedBatches": "tidelog.client.consumer.fetching.fetch_buffer",
    "MemberDescription": "tidelog.groups.descriptions",
    "MemberToRemove": "tidelog.groups.descriptions",
    "Metrics": "tidelog.client.metrics.snapshot",
    "NewPartitions": "tidelog.protocol.partition_messages",
    "NewTopic": "tidelog.protocol.messages",
    "NoOffset": "tidelog.model",
    "OffsetAndMetadata": "tidelog.model",
    "OffsetAndTimestamp": "tidelog.model",
    "OffsetOutcome": "tidelog.model",
    "OffsetReset": "tidelog.groups.reset",
    "OlderRecords": "tidelog.client.consumer.seek_to_time",
    "PartitionDescription": "tidelog.client.admin.admin_results",
    "PartitionLag": "tidelog.groups.lag",
    "PartitionReassignment": "tidelog.protocol.partition_messages",
    "Producer": "tidelog.client.producer.producer",
    "RecordFuture": "tidelog.client.producer.record_future",
    "RecordRun": "tidelog.client.producer.record_future",
    "RunPart": "tidelog.client.producer.record_future",
    "RecordMetadata": "tidelog.model",
    "Scan": "tidelog.arrow.scan",
    "ShiftBy": "tidelog.groups.reset",
    "StartReason": "tidelog.client.consumer.seek_to_time",
    "StartingPoint": "tidelog.client.consumer.seek_to_time",
    "TidelogError": "tidelog.errors",
    "ToCurrent": "tidelog.groups.reset",
    "ToEarliest": "tidelog.groups.reset",
    "ToLatest": "tidelog.groups.reset",
    "ToOffset": "tidelog.groups.reset",
    "ToTime": "tidelog.groups.reset",
    "TopicDescription": "tidelog.client.admin.admin_results",
    "TopicPartition": "tidelog.model",
    "scan": "tidelog.arrow.scan",
}
_SUBMODULES = ("aio", "errors")


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return importlib.import_module(f"tidelog.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_SUBMODULES]
