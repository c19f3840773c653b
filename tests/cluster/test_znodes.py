"""The bytes in ZooKeeper are Kafka's: Tidelog reads what Kafka writes, and writes what Kafka would."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.state import BrokerRegistration, PartitionState, TopicAssignment
from cluster.zookeeper import znodes
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.listeners import BROKERS, CLIENTS


def test_a_state_is_kafkas_json() -> None:
    state = PartitionState(1, 3, (1, 2), 5)
    data = b'{"controller_epoch":5,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
    assert znodes.encode_state(state) == data
    assert znodes.decode_state(data) == state
    left_alone = replace(state, isr=(1,), eligible=(2, 3))
    assert json.loads(znodes.encode_state(left_alone)) == {**json.loads(data), "isr": [1], "eligible": [2, 3]}
    assert znodes.decode_state(znodes.encode_state(left_alone)).eligible == (2, 3)


def test_registration_has_both_endpoints_and_the_czxid_as_epoch() -> None:
    broker = BrokerRegistration(3, {BROKERS: Endpoint("::1", 9601), CLIENTS: Endpoint("h", 9092)})
    data = znodes.encode_broker(broker, 1234)
    assert json.loads(data) == {
        "features": {},
        "listener_security_protocol_map": {"KAFKA": "PLAINTEXT", "REPLICATION": "PLAINTEXT"},
        "endpoints": ["KAFKA://h:9092", "REPLICATION://[::1]:9601"],
        "jmx_port": -1,
        "port": -1,
        "host": None,
        "version": 5,
        "timestamp": "1234",
    }
    assert znodes.decode_broker(3, data, 77) == replace(broker, epoch=77)


def test_registration_has_a_rack_as_kafka_writes_it() -> None:
    listeners = {BROKERS: Endpoint("h", 9601), CLIENTS: Endpoint("h", 9092)}
    data = znodes.encode_broker(BrokerRegistration(3, listeners, rack="r1"), 1234)
    assert json.loads(data)["rack"] == "r1"
    assert znodes.decode_broker(3, data, 77).rack == "r1"
    for absent in (b"null", b'""'):
        assert znodes.decode_broker(3, data.replace(b'"r1"', absent), 77).rack is None
    with pytest.raises(znodes.MalformedZnodeError, match="rack 7 is not a string"):
        znodes.decode_broker(3, data.replace(b'"r1"', b"7"), 77)


def test_a_topic_keeps_its_assignment_id_and_settings() -> None:
    topic = TopicAssignment("t", "AAAAAAAAAAAAAAAAAAAAAQ", {0: (1, 2), 10: (2, 1)}, {"retention.ms": "-1"})
    data = znodes.encode_topic(topic)
    assert data == (
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2],"10":[2,1]},'
        b'"adding_replicas":{},"removing_replicas":{}}'
    )
    configs = znodes.decode_topic_config(znodes.encode_topic_config(topic.configs))
    assert znodes.decode_topic("t", data, configs) == topic


def test_small_znodes_come_back_as_they_were_written() -> None:
    assert znodes.decode_controller(znodes.encode_controller(4, 1)) == 4
    assert znodes.decode_controller(b'{"version":1,"brokerid":0,"timestamp":"1690000000000"}') == 0
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(12)) == 12
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("x")) == "x"
    assert znodes.encode_producer_id_block(1, range(1000)) == (
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    )
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(1, range(0))) == (1, range(0))
    tps = [TopicPartition("a", 0), TopicPartition("b", 3)]
    assert znodes.decode_isr_change(znodes.encode_isr_change(tps)) == tps
    assert znodes.encode_log_dir_failure(7) == b'{"version":1,"broker":7,"event":1}'
    assert znodes.decode_log_dir_failure(znodes.encode_log_dir_failure(7)) == 7


def test_paths_are_kafkas() -> None:
    tp = TopicPartition("t", 4)
    assert znodes.state_path(tp) == "/brokers/topics/t/partitions/4/state"
    assert znodes.broker_path(2) == "/brokers/ids/2"
    assert znodes.topic_config_path("t") == "/config/topics/t"


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"null", b"[]", b"{}", b'{"partitions":7,"endpoints":[1],"config":0}', b"\xff"),
        *(b'{"leader":1e999}', pytest.param(b"[" * 100_000, id="deep")),
    ],
)
@pytest.mark.parametrize(
    "decode",
    [
        znodes.decode_controller,
        znodes.decode_state,
        znodes.decode_topic_config,
        znodes.decode_isr_change,
        znodes.decode_log_dir_failure,
        znodes.decode_producer_id_block,
        znodes.decode_cluster_id,
        lambda data: znodes.decode_topic("t", data, {}),
        lambda data: znodes.decode_broker(1, data, 0),
    ],
)
def test_anything_else_is_refused_by_name(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(znodes.MalformedZnodeError):
        decode(data)


def test_a_topic_on_its_way_is_written_as_kafka_writes_it() -> None:
    topic = TopicAssignment("t", "AAAAAAAAAAAAAAAAAAAAAQ", {0: (1, 2, 3)}, {}, {0: (3,)}, {0: (1,)})
    data = znodes.encode_topic(topic)
    assert data == (
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2,3]},'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    )
    assert znodes.decode_topic("t", data, {}, 7) == topic
    assert znodes.decode_topic("t", data, {}, 7).version == 7
