"""Test the doctor's checks over the facts about a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidelog.client.diagnosis.doctor_checks import (
    BrokerAnswer,
    Check,
    ClusterFacts,
    State,
    examine_cluster,
    examine_file_limit,
)
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.connected_broker import TIDELOG
from tidelog.protocol.messages import BrokerAddress, MetadataResponse, PartitionMetadata, TopicMetadata
from tidelog.protocol.operator_messages import DescribeBrokerResponse, LogDirectoryReport

GIB = 1 << 30
DISK = LogDirectoryReport("/d", "", 500 * GIB, 300 * GIB, 1_000_000, 900_000)
WELL = DescribeBrokerResponse(
    0, 1, "1.0", 1_000, 60_000, 3, 50, 20_000, "z:2181", 500, 6_000, None, (DISK,), 1_000, 118 << 20, 8 * GIB, 4 * GIB,
    50, 1_000,
)  # fmt: skip
METADATA = MetadataResponse(
    "c",
    1,
    (BrokerAddress(1, "h", 1), BrokerAddress(2, "h", 2)),
    (TopicMetadata("t", 0, "id", False, (PartitionMetadata(0, 0, 1, 0, (1, 2), (1, 2)),)),),
)


def answer(number: int, ahead_ms: float = 0, **changes: Any) -> BrokerAnswer:
    return BrokerAnswer(Endpoint("h", number), replace(WELL, broker_id=number, **changes), "", ahead_ms, 1, TIDELOG)


def facts(*answers: BrokerAnswer, metadata: MetadataResponse | None = METADATA) -> ClusterFacts:
    return ClusterFacts(metadata, {f"broker {each.endpoint.port}": each for each in answers or (answer(1), answer(2))})


def checked(of: ClusterFacts, name: str) -> Check:
    [found] = [check for check in examine_cluster(of) if check.name == name]
    return found


def test_a_cluster_that_is_well_needs_no_advice() -> None:
    checks = examine_cluster(facts())
    assert {check.state for check in checks} == {State.OK} and not any(check.advice for check in checks)
    assert {check.name for check in checks} == {
        "cluster", "broker 1", "broker 2", "controller", "partitions", "clocks", "versions",
    } | {
        f"broker {number}, {what}"
        for number in (1, 2)
        for what in ("disk", "files", "clients", "partitions", "memory", "ZooKeeper")
    }  # fmt: skip


def test_a_broker_that_does_not_answer_or_is_not_ready_is_a_failure() -> None:
    silent = BrokerAnswer(Endpoint("h", 2), None, "connection refused")
    found = checked(facts(answer(1), silent), "broker 2")
    assert (found.state, found.sentence) == (State.FAILURE, "h:2 does not answer: connection refused")
    found = checked(facts(answer(1, not_ready="opening its logs")), "broker 1")
    assert (found.state, found.sentence) == (State.FAILURE, "not ready: opening its logs")


def test_unhealthy_partitions_are_named_with_the_explain_command() -> None:
    short = PartitionMetadata(0, 0, 1, 0, (1, 2), (1,))
    unled = [PartitionMetadata(number, 5, -1, 0, (1, 2), (1,)) for number in range(4)]
    topics = (TopicMetadata("s", 0, "", False, (short,)), TopicMetadata("u", 0, "", False, tuple(unled)))
    metadata = replace(METADATA, topics=topics, controller_id=-1)
    without, under = [check for check in examine_cluster(facts(metadata=metadata)) if check.name == "partitions"]
    assert without == Check("partitions", State.FAILURE, "4 (u/0, u/1, u/2, …) without a leader", "tidelog explain u/0")
    assert under == Check("partitions", State.WARNING, "1 (s/0) under-replicated", "tidelog explain s/0")
    assert checked(facts(metadata=metadata), "controller").state is State.FAILURE


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"free_bytes": GIB // 8}, State.FAILURE),
        ({"free_bytes": 10 * GIB}, State.WARNING),
        ({"free_bytes": 10 * GIB, "total_bytes": 40 * GIB}, State.OK),
        ({"free_inodes": 5_000}, State.FAILURE),
        ({"free_inodes": 50_000}, State.WARNING),
        ({"free_inodes": 0, "total_inodes": 0}, State.OK),
        ({"error": "I/O error"}, State.FAILURE),
    ],
)
def test_disks_that_fill_up(changes: dict[str, Any], state: State) -> None:
    of = facts(answer(1, log_directories=(replace(DISK, **changes),)))
    assert checked(of, "broker 1, disk").state is state


@pytest.mark.parametrize(
    ("open_files", "limit", "state"),
    [(16_000, 20_000, State.OK), (16_001, 20_000, State.WARNING), (-1, 20_000, State.OK), (16_001, -1, State.OK)],
)
def test_doctor_warns_above_80_percent_of_the_open_file_limit(open_files: int, limit: int, state: State) -> None:
    found = checked(facts(answer(1, open_files=open_files, open_files_limit=limit)), "broker 1, files")
    assert found.state is state
    assert ("raise the limit to 40,000 or more" in found.advice) == (state is State.WARNING)


@pytest.mark.parametrize(("held", "state"), [(800, State.OK), (801, State.WARNING)])
def test_doctor_warns_above_80_percent_of_the_connections(held: int, state: State) -> None:
    found = checked(facts(answer(1, connections=held)), "broker 1, clients")
    assert (found.state, found.sentence) == (state, f"{held} of at most 1,000 connections of clients are open")
    assert ("max.connections" in found.advice) == (state is State.WARNING)


def test_partitions_beyond_the_open_files_are_no_problem() -> None:
    assert checked(facts(answer(1, partitions=20_000, open_files_limit=4_096)), "broker 1, files").state is State.OK


@pytest.mark.parametrize(("held", "state"), [(800, State.OK), (801, State.WARNING), (1_000, State.WARNING)])
def test_doctor_warns_above_80_percent_of_the_partition_limit(held: int, state: State) -> None:
    found = checked(facts(answer(1, partitions=held)), "broker 1, partitions")
    assert (found.state, found.sentence) == (state, f"{held:,} of at most 1,000 are held (max.broker.partitions)")
    assert ("max.broker.partitions" in found.advice) == (state is State.WARNING)


def test_limit_of_partitions_is_that_of_the_controller() -> None:
    of = facts(answer(1, max_partitions=200), answer(2, partitions=190, max_partitions=1_000))
    found = checked(of, "broker 2, partitions")
    assert (found.state, found.sentence) == (State.WARNING, "190 of at most 200 are held (max.broker.partitions)")


@pytest.mark.parametrize(
    ("free", "state"), [(8 * GIB // 10, State.WARNING), (GIB, State.OK), (GIB // 8, State.FAILURE)]
)
def test_doctor_warns_of_little_memory_and_fails_for_hardly_any(free: int, state: State) -> None:
    found = checked(facts(answer(1, free_memory_bytes=free)), "broker 1, memory")
    assert found.state is state and found.sentence.endswith("of 8 GiB are free; the broker uses 118 MiB")
    assert bool(found.advice) == (state is not State.OK)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_partitions": -1, "total_memory_bytes": -1, "free_memory_bytes": -1, "connections": -1},
        {"max_partitions": 0, "free_memory_bytes": -1, "max_connections": -1},
        {"max_partitions": -1, "total_memory_bytes": 0, "max_connections": 0},
    ],
)
def test_limits_that_a_broker_does_not_report_are_not_checked(changes: dict[str, int]) -> None:
    names = {check.name for check in examine_cluster(facts(answer(1, **changes)))}
    assert "broker 1, files" in names and not names & {"broker 1, partitions", "broker 1, memory", "broker 1, clients"}


def test_limit_of_partitions_is_unknown_if_the_controller_is_silent() -> None:
    silent = BrokerAnswer(Endpoint("h", 1), None, "connection refused")
    for of in (facts(silent, answer(2)), facts(answer(2), metadata=None)):
        assert "broker 2, partitions" not in {check.name for check in examine_cluster(of)}
    assert checked(facts(answer(1, memory_bytes=-1)), "broker 1, memory").sentence == "4 GiB of 8 GiB are free"


def test_versions_of_many_brokers_name_five() -> None:
    old = [answer(number) for number in range(1, 9)]
    found = checked(facts(*old, answer(9, software_version="1.1")), "versions")
    assert found.sentence == "1.0 on broker 1, broker 2, broker 3, broker 4, broker 5 and 3 more; 1.1 on broker 9"


def test_a_process_that_may_open_few_files() -> None:
    assert examine_file_limit(4_000).state is State.OK
    assert examine_file_limit(1_024).state is State.WARNING
    assert examine_file_limit(-1).state is State.OK, "there is no limit"


@pytest.mark.parametrize(("silence_ms", "state"), [(3_000, State.OK), (3_001, State.WARNING), (6_000, State.FAILURE)])
def test_broker_without_contact_to_zookeeper(silence_ms: int, state: State) -> None:
    assert checked(facts(answer(1, zookeeper_silence_ms=silence_ms)), "broker 1, ZooKeeper").state is state


@pytest.mark.parametrize(
    ("ahead_ms", "state"), [(499, State.OK), (600, State.WARNING), (-600, State.WARNING), (700_000, State.FAILURE)]
)
def test_clocks_that_disagree(ahead_ms: int, state: State) -> None:
    assert checked(facts(answer(1), answer(2, ahead_ms)), "clocks").state is state


def test_uncertainty_of_a_slow_answer_does_not_count_as_skew() -> None:
    late = replace(answer(2, 900), uncertainty_ms=800)
    assert checked(facts(answer(1), late), "clocks").state is State.OK


def test_versions_that_differ_are_an_upgrade_to_be_finished() -> None:
    found = checked(facts(answer(1), answer(2, software_version="1.1")), "versions")
    assert (found.state, found.sentence) == (State.WARNING, "1.0 on broker 1; 1.1 on broker 2")


def test_kind_of_cluster_is_named_first() -> None:
    assert examine_cluster(facts())[0] == Check("cluster", State.OK, "Tidelog")
    silent = BrokerAnswer(Endpoint("h", 2), None, "connection refused")
    assert examine_cluster(facts(silent))[0].name == "broker 2", "no broker has answered"
    mixed = examine_cluster(facts(answer(1), BrokerAnswer(Endpoint("h", 2), None, cluster_kind="Apache Kafka")))[0]
    assert (mixed.state, mixed.sentence) == (State.WARNING, "the brokers are of several kinds: Apache Kafka, Tidelog")


def test_foreign_cluster_is_named_and_only_its_leaders_are_checked() -> None:
    kafka = "Apache Kafka (metadata.version 27)"
    foreign = [BrokerAnswer(Endpoint("h", number), None, cluster_kind=kafka) for number in (1, 2)]
    checks = examine_cluster(facts(*foreign))
    assert [(check.name, check.state) for check in checks] == [
        (name, State.OK) for name in ("cluster", "broker 1", "broker 2", "controller", "partitions")
    ]
    assert checks[0].sentence == f"{kafka}: its disks, files and clocks are not checked"
    assert checks[1].sentence == "answers at h:1"
