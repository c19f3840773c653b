"""Paths and contents of the znodes: Kafka's own, with its JSON, so that Kafka's tools can read them.

Paths are absolute below the store's chroot. Decoders accept what Kafka itself may have written, and raise
`MalformedZnodeError` for anything else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cluster.state import NO_VERSION, BrokerRegistration, PartitionState, TopicAssignment
from tidelog.errors import TidelogError
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS, Listener

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CLUSTER_ID = "/cluster/id"
CONSUMERS = "/consumers"

#: The greatest 64-bit offset.
MAX_OFFSET = (1 << 63) - 1
_OFFSET_DIGITS = len(str(MAX_OFFSET))

#: The paths that `ZkClient.ensure_paths` creates.
PERSISTENT_PATHS = (
    "/brokers",
    BROKER_IDS,
    BROKER_TOPICS,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    "/config",
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    "/cluster",
    CONSUMERS,
)


class MalformedZnodeError(TidelogError):
    """A znode cannot be decoded: it is not in Kafka's format, or it is a broker's and lacks Tidelog's listeners.

    The message names the path or its kind.
    """


def broker_path(broker_id: int) -> str:
    """Return the path of one broker's ephemeral registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of one topic's assignment."""
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the parent path of a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    """Return the parent path of one partition's state."""
    return f"{BROKER_TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    """Return the path of one partition's leader, epoch and ISR."""
    return f"{partition_path(tp)}/state"


def topic_config_path(topic: str) -> str:
    """Return the path of the topic's settings that differ from the defaults."""
    return f"{CONFIG_TOPICS}/{topic}"


def broker_config_path(name: str) -> str:
    """Return the path of the settings of one broker, whose id is the name, or of all brokers (`<default>`)."""
    return f"{CONFIG_BROKERS}/{name}"


def delete_topic_path(topic: str) -> str:
    """Return the path of the request to delete a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def consumer_offsets_path(group_id: str) -> str:
    """Return the parent path of the topics for which a group has offsets in ZooKeeper."""
    return f"{CONSUMERS}/{group_id}/offsets"


def consumer_offset_path(group_id: str, tp: TopicPartition) -> str:
    """Return the path of a group's committed offset for one partition."""
    return f"{consumer_offsets_path(group_id)}/{tp.topic}/{tp.partition}"


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@contextmanager
def _decoded(kind: str, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON object in `data`. MalformedZnodeError if it is no object, or lacks a field that the block
    reads.
    """
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise TypeError("not a JSON object")
        yield value
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedZnodeError(f"{kind}: {error!r} in {data[:200]!r}") from error


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    """Encode `/controller`. `now_ms` is wall time, for human readers only."""
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """Return the controller's broker id. MalformedZnodeError."""
    with _decoded(CONTROLLER, data) as value:
        return int(value["brokerid"])


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode `/controller_epoch`, a bare decimal number."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """Return the latest controller epoch ever granted. MalformedZnodeError."""
    try:
        return int(data)
    except ValueError as error:
        raise MalformedZnodeError(f"/controller_epoch: {data[:80]!r} is not a number") from error


def encode_broker(registration: BrokerRegistration, now_ms: int) -> bytes:
    """Encode `/brokers/ids/N`. `now_ms` is wall time, for human readers only.

    `host` and `port` are null and −1, as in a Kafka broker without a listener PLAINTEXT. A broker without a rack has no
    `rack`, as in Kafka.
    """
    listeners = [Listener(name, endpoint) for name, endpoint in sorted(registration.listeners.items())]
    rack = {"rack": registration.rack} if registration.rack else {}
    ours = {"possibly_short": True} if registration.possibly_short else {}
    return _encode(
        {
            "features": {},
            "listener_security_protocol_map": {listener.name: "PLAINTEXT" for listener in listeners},
            "endpoints": list(map(str, listeners)),
            "jmx_port": -1,
            "port": -1,
            "host": None,
            "version": 5,
            "timestamp": str(now_ms),
            **rack,
            **ours,
        }
    )


def decode_broker(broker_id: int, data: bytes, czxid: int) -> BrokerRegistration:
    """Decode a registration as read; its epoch is the znode's czxid.

    MalformedZnodeError, also if one of the listeners KAFKA and REPLICATION is missing. A rack that is missing, null or
    empty is None.
    """
    with _decoded(broker_path(broker_id), data) as value:
        listeners: dict[str, Endpoint] = {}
        for text in value["endpoints"]:
            name, _, address = text.partition("://")
            listeners[name] = Endpoint.parse(address)
        if missing := {CLIENTS, BROKERS} - listeners.keys():
            raise KeyError(*missing)
        rack = value.get("rack") or None
        if not isinstance(rack, str | None):
            raise TypeError(f"rack {rack!r} is not a string")
        possibly_short = value.get("possibly_short") is True
    return BrokerRegistration(broker_id, listeners, czxid, possibly_short, rack)


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Encode `/brokers/topics/T`, version 3. The settings are in another znode."""
    return _encode(
        {
            "version": 3,
            "topic_id": assignment.topic_id,
            "partitions": _encode_replicas(assignment.partitions),
            "adding_replicas": _encode_replicas(assignment.adding),
            "removing_replicas": _encode_replicas(assignment.removing),
        }
    )


def decode_topic(topic: str, data: bytes, configs: Mapping[str, str], version: int = NO_VERSION) -> TopicAssignment:
    """Decode an assignment as read, with the settings from their own znode; the topic id is "" if it is missing.

    MalformedZnodeError.
    """
    with _decoded(topic_path(topic), data) as value:
        return TopicAssignment(
            topic,
            str(value.get("topic_id", "")),
            _decode_replicas(value["partitions"]),
            dict(configs),
            _decode_replicas(value.get("adding_replicas", {})),
            _decode_replicas(value.get("removing_replicas", {})),
            version,
        )


def _encode_replicas(partitions: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas) for partition, replicas in sorted(partitions.items())}


def _decode_replicas(value: Mapping[str, list[Any]]) -> dict[int, tuple[int, ...]]:
    return {int(partition): tuple(int(replica) for replica in replicas) for partition, replicas in value.items()}


def encode_state(state: PartitionState) -> bytes:
    """Encode `/brokers/topics/T/partitions/P/state`, version 1; with Tidelog's key `eligible` if any replica is
    eligible.
    """
    value = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    return _encode(value | {"eligible": list(state.eligible)} if state.eligible else value)


def decode_state(data: bytes) -> PartitionState:
    """Decode a partition's state; without the key `eligible`, no replica is eligible. MalformedZnodeError."""
    with _decoded("partition state", data) as value:
        return PartitionState(
            leader=int(value["leader"]),
            leader_epoch=int(value["leader_epoch"]),
            isr=tuple(int(replica) for replica in value["isr"]),
            controller_epoch=int(value["controller_epoch"]),
            eligible=tuple(int(replica) for replica in value.get("eligible", ())),
        )


def encode_topic_config(configs: Mapping[str, str]) -> bytes:
    """Encode `/config/topics/T`."""
    return _encode({"version": 1, "config": dict(configs)})


def decode_topic_config(data: bytes) -> dict[str, str]:
    """Return the topic's settings that differ from the defaults."""
    with _decoded(CONFIG_TOPICS, data) as value:
        return {str(name): str(setting) for name, setting in value["config"].items()}


def encode_broker_config(configs: Mapping[str, str]) -> bytes:
    """Encode `/config/brokers/N`, or `/config/brokers/<default>`."""
    return encode_topic_config(configs)


def decode_broker_config(data: bytes) -> dict[str, str]:
    """Return the settings of one broker, or of all brokers, that take effect while brokers run."""
    with _decoded(CONFIG_BROKERS, data) as value:
        return {str(name): str(setting) for name, setting in value["config"].items()}


def encode_config_change(topic: str) -> bytes:
    """Encode `/config/changes/config_change_N`, the notification that a topic's settings have changed."""
    return _encode({"version": 2, "entity_path": f"topics/{topic}"})


def decode_config_change(data: bytes) -> str | None:
    """Return the topic whose settings have changed, or None if the notification is not about a topic."""
    with _decoded(CONFIG_CHANGES, data) as value:
        if value["version"] == 1:
            kind, name = str(value["entity_type"]), str(value["entity_name"])
        else:
            kind, _, name = str(value["entity_path"]).partition("/")
        return name if kind == "topics" and name else None


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/isr_change_notification/isr_change_N`, the notification that a leader has changed the ISR of
    partitions.
    """
    return _encode({"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]})


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    """Return the partitions that an ISR change notification names. MalformedZnodeError."""
    with _decoded(ISR_CHANGE_NOTIFICATION, data) as value:
        return [TopicPartition(str(entry["topic"]), int(entry["partition"])) for entry in value["partitions"]]


def encode_log_dir_failure(broker_id: int) -> bytes:
    """Encode `/log_dir_event_notification/log_dir_event_N`: a broker's log directory has failed (event 1, the only
    kind).
    """
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_failure(data: bytes) -> int:
    """Return the broker whose log directory has failed."""
    with _decoded(LOG_DIR_EVENT_NOTIFICATION, data) as value:
        return int(value["broker"])


def encode_producer_id_block(broker_id: int, ids: range) -> bytes:
    """Encode `/latest_producer_id_block`, in which numbers are strings."""
    return _encode({"version": 1, "broker": broker_id, "block_start": str(ids.start), "block_end": str(ids.stop - 1)})


def decode_producer_id_block(data: bytes) -> tuple[int, range]:
    """Return the broker that took the latest block, and the block."""
    with _decoded(PRODUCER_ID_BLOCK, data) as value:
        return int(value["broker"]), range(int(value["block_start"]), int(value["block_end"]) + 1)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode `/cluster/id`."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Return the id that every data directory of the cluster carries."""
    with _decoded(CLUSTER_ID, data) as value:
        return str(value["id"])


def encode_consumer_offset(offset: int) -> bytes:
    """Encode `/consumers/G/offsets/T/P`, a bare decimal number."""
    return str(offset).encode()


def decode_consumer_offset(path: str, data: bytes) -> int:
    """Return the offset that a group reads next, as stored at `path`."""
    if not data.isdigit() or len(data) > _OFFSET_DIGITS or int(data) > MAX_OFFSET:
        raise MalformedZnodeError(f"{path}: {data[:80]!r} is not an offset")
    return int(data)
