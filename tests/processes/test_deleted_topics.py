"""Topics that are deleted, and what a broker makes of it that slept meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from cluster.state import TopicAssignment
from cluster.zookeeper import znodes
from tests.processes.harness.asking import ask
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.waiting import require_bite, wait_bitten, wait_for
from tests.processes.harness.workload import Workload
from tidelog.protocol.messages import FetchPartition, FetchRequest, FetchResponse

pytestmark = pytest.mark.slow

PARTITIONS = 3


def topic_id(cluster: RunningCluster) -> str:
    return cluster.admin.describe_topics(["t"])[0].topic_id


def assign(cluster: RunningCluster, replicas: dict[int, tuple[int, ...]]) -> None:
    """Create the topic as an operator's tool does that does not check which brokers are alive."""
    assignment = TopicAssignment("t", "AnotherTopicOfThatNamQ", replicas)
    with cluster.zookeeper() as client:
        configs = znodes.encode_topic_config({"min.insync.replicas": "2"})
        client.create(znodes.topic_config_path("t"), configs)
        client.create(znodes.topic_path("t"), znodes.encode_topic(assignment))


@pytest.mark.parametrize("cluster", [{"zookeeper_session_timeout_ms": 3000}], indirect=True)
@pytest.mark.parametrize("sleep", [pytest.param("stopped", marks=pytest.mark.slow), "killed"])
def test_topic_recreated_while_a_broker_was_paused_has_no_old_records(cluster: RunningCluster, sleep: str) -> None:
    tps = cluster.create_topic("t", partitions=PARTITIONS)
    before = topic_id(cluster)
    sleeper = next(each for each in cluster.broker_ids if each != cluster.controller())
    awake = [each for each in cluster.broker_ids if each != sleeper]
    with Workload(cluster.bootstrap_servers, tps) as old:
        old.wait_acknowledged(300)
    for tp in tps:
        require_bite("the sleeper has no old records", cluster.wait_same_end(tp) > 0)

    with ExitStack() as asleep:
        if sleep == "killed":
            cluster.kill(sleeper)
        else:
            asleep.enter_context(cluster.paused(sleeper))
        wait_bitten("the sleeper to be missed", lambda: not cluster.broker_epoch(sleeper))
        cluster.admin.delete_topics(["t"])
        wait_for("the topic to be gone", lambda: "t" not in cluster.admin.list_topics())
        wait_for(
            "the others to have removed it",
            lambda: not any((cluster.local.broker_dir(each) / str(tp)).exists() for each in awake for tp in tps),
        )
        assign(cluster, {partition: (*awake, sleeper) for partition in range(PARTITIONS)})
        wait_for("the new topic to be led", lambda: "t" in cluster.admin.list_topics())
        require_bite("the topic is the same", topic_id(cluster) != before)
        with ordeal(cluster, tps) as under:
            under.workload.wait_acknowledged(300)
            if sleep == "killed":
                cluster.restart(sleeper)
            else:
                on_topic_recreated = [
                    FetchPartition(*tp, -1, 0, 1 << 20, topic_id="AnotherTopicOfThatNamQ") for tp in tps
                ]
                with ThreadPoolExecutor() as asking:  # when it wakes up it finds the questions waiting
                    answers = [
                        asking.submit(ask, cluster.address(sleeper), FetchRequest(-1, 0, 1, 1 << 20, (each,)), 20_000)
                        for each in on_topic_recreated
                    ]
                    asleep.close()
                for answer in answers:
                    response = answer.result()
                    assert isinstance(response, FetchResponse)
                    assert not response.partitions[0].records, "what it has is of another topic"
            cluster.wait_serves(sleeper)
