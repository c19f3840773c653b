"""Readiness and metrics of a broker whose replicas and states are in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cluster.replication.partition import Role
from node.net.client_connections import ClientConnections
from node.net.http_server import Answer, line
from node.net.identity import Identity
from node.observability import exposition, replica_metrics
from node.observability.health_endpoints import HealthEndpoints, Scrapes
from node.observability.metric_families import Family, Kind
from node.observability.metrics import Metrics
from node.observability.readiness import why_not_ready
from node.runtime.latency_histogram import LatencyHistogram, RequestTimes
from tests.node.client_requests import TP, produce_request
from tests.node.memory_cluster import TOPIC_ID, MemoryCluster
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import MessageTooLargeError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import StopReplicaPartition, StopReplicaRequest, TopicInfo, UpdateMetadataRequest
from tidelog.protocol.messages import ApiKey

EMPTY_DISKS = SimpleNamespace(directories=(), failures={})


def identity_in(cluster: MemoryCluster, broker_id: int) -> Identity:
    return Identity("c", broker_id, cluster.nodes[broker_id].epoch)


def readiness(cluster: MemoryCluster, broker_id: int, identity: Identity | None = None) -> str | None:
    node = cluster.nodes[broker_id]
    identity = identity or identity_in(cluster, broker_id)
    return why_not_ready(identity, node.metadata, node.replicas, cut_off=node.cut_off)


async def inform(cluster: MemoryCluster, broker_id: int) -> None:
    states, topics = cluster.leader_and_isr().partitions, (TopicInfo(TP.topic, TOPIC_ID, {}, 1),)
    update = UpdateMetadataRequest(1, 1, cluster.live(), states, topics, (), {TP.topic: TOPIC_ID})
    await cluster.nodes[broker_id].ask(update, sender_epoch=1)


def metrics_of(cluster: MemoryCluster, broker_id: int, *, leads: bool = False) -> Metrics:
    node = cluster.nodes[broker_id]
    return Metrics(
        identity=identity_in(cluster, broker_id),
        metadata=node.metadata,
        replicas=node.replicas,
        waiting=node.purgatories,
        groups=node.groups,
        session=SimpleNamespace(cut_off=False, silence_ms=1500),
        elector=SimpleNamespace(is_controller=leads),
        disks=EMPTY_DISKS,
        request_times={},
        clients=ClientConnections(node.replicas.clock, lambda name: name),
        why_not_ready=lambda: None,
    )


async def series(of: Metrics) -> dict[str, float]:
    """Return every sample of the broker as a whole, by its name and labels, as Prometheus reads them."""
    return samples_of(await of.read())


async def partition_series(of: Metrics, topic: str = "") -> dict[str, float]:
    """Return every sample of single partitions."""
    return samples_of(await of.read_partitions(topic))


def samples_of(families: list[Family]) -> dict[str, float]:
    text = b"".join(exposition.expose(families)).decode()
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tidelog_"))
    return {name: float(value) for name, value in samples}


# --- readiness ---------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_broker_is_ready_once_registered_and_serving_its_replicas() -> None:
    async with MemoryCluster() as cluster:
        assert readiness(cluster, 2) == "the controller has not sent this broker its partitions yet"
        await cluster.elect(1, send_to=[1, 3])
        assert readiness(cluster, 3) == "the controller has not sent this broker its partitions yet", (
            "the broker does not know all topics yet"
        )
        await inform(cluster, 2)
        assert readiness(cluster, 2) == "not serving yet: t-0"
        await cluster.send_state([2])
        assert readiness(cluster, 2) is None
        assert readiness(cluster, 2, Identity("c", 2)) == "not registered with ZooKeeper"
        assert readiness(cluster, 2, Identity("c", 2, 999)) == (
            "the controller has not sent this broker its partitions yet"
        )
        cluster.nodes[2].cut_off = True
        assert readiness(cluster, 2) == "ZooKeeper has confirmed no request for a session timeout"


@on_virtual_time
async def test_broker_that_lost_its_roles_is_not_ready_until_it_gets_them() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await inform(cluster, 1)
        assert readiness(cluster, 1) is None
        cluster.nodes[1].replicas.registration_lost()
        assert readiness(cluster, 1) == "not serving yet: t-0"


@on_virtual_time
async def test_broker_with_a_stray_log_is_ready() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        node, (state,) = cluster.nodes[2], cluster.leader_and_isr().partitions
        stop = StopReplicaPartition(*TP, state.leader_epoch, False)
        await node.ask(StopReplicaRequest(1, cluster.controller_epoch, (stop,)), sender_epoch=1)
        moved, topics = replace(state, replicas=(1, 3), leaving=(2,)), (TopicInfo(TP.topic, TOPIC_ID, {}, 1),)
        request = UpdateMetadataRequest(
            1, cluster.controller_epoch, cluster.live(), (moved,), topics, (), {TP.topic: TOPIC_ID}
        )
        await node.ask(request, sender_epoch=1)
        assert node.replica().partition.role is Role.STOPPED
        assert readiness(cluster, 2) is None


@on_virtual_time
async def test_broker_that_shuts_down_is_not_ready() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.nodes[2].shutting_down = True
        await inform(cluster, 2)
        assert readiness(cluster, 2) == "shutting down"


@on_virtual_time
async def test_starting_broker_reports_its_current_step() -> None:
    observation = HealthEndpoints()
    observation.stage = "waiting for ZooKeeper at h:1"
    for path, status in (("/healthz", 200), ("/readyz", 503), ("/metrics/partitions", 503), ("/metrics", 503)):
        answer = await observation.answer(path)
        assert answer is not None and answer.status == status
    assert answer.body == b"waiting for ZooKeeper at h:1\n"
    assert await observation.answer("/") is None


# --- numbers -----------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_metrics_of_a_leader_have_lags_and_isr_sizes() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        assert await cluster.produce(b"a") == (0, 0)
        await until(lambda: cluster.nodes[2].replica().partition.high_watermark == 1)
        cluster.cut(1, 2, 3)
        await cluster.produce(b"b", acks=1)
        samples = await series(metrics_of(cluster, 1))
        assert samples['tidelog_follower_lag_records{follower="2"}'] == 1
        single = await partition_series(metrics_of(cluster, 1))
        assert single['tidelog_partition_follower_lag_records{follower="3",partition="0",topic="t"}'] == 1
        assert single['tidelog_partition_high_watermark{partition="0",topic="t"}'] == 1
        assert single['tidelog_partition_log_end_offset{partition="0",topic="t"}'] == 2
        assert (samples["tidelog_leaders"], samples["tidelog_under_replicated_partitions"]) == (1, 0)

        leader = cluster.nodes[1].replica().partition
        await until(lambda: len(leader.isr) == 1)
        samples = await series(metrics_of(cluster, 1))
        assert (samples["tidelog_under_replicated_partitions"], samples["tidelog_under_min_isr_partitions"]) == (1, 1)
        assert (samples["tidelog_isr_shrinks_total"], samples["tidelog_isr_expansions_total"]) == (1, 0)
        cluster.heal()
        await until(lambda: len(leader.isr) == 3)
        samples = await series(metrics_of(cluster, 1))
        assert (samples["tidelog_under_replicated_partitions"], samples["tidelog_under_min_isr_partitions"]) == (0, 0)
        assert (samples["tidelog_isr_shrinks_total"], samples["tidelog_isr_expansions_total"]) == (1, 2)
        assert samples["tidelog_zookeeper_silence_seconds"] == 1.5

        follower = await series(metrics_of(cluster, 2))
        assert (follower["tidelog_partitions"], follower["tidelog_leaders"]) == (1, 0)


@on_virtual_time
async def test_expired_produce_is_counted() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        cluster.cut(1, 2, 3)
        node = cluster.nodes[1]
        node.replicas.purgatories.produces._now_ns = lambda: round(node.replicas.clock.monotonic_ms() * 1e6)
        await node.ask(produce_request(b"a", timeout_ms=300))
        samples = await series(metrics_of(cluster, 1))
        assert samples['tidelog_purgatory_expired_total{purgatory="produce"}'] == 1
        assert samples['tidelog_purgatory_wait_seconds_bucket{le="0.25",purgatory="produce"}'] == 0
        assert samples['tidelog_purgatory_wait_seconds_bucket{le="0.5",purgatory="produce"}'] == 1
        assert samples['tidelog_purgatory_size{purgatory="produce"}'] == 0


@on_virtual_time
async def test_only_the_controller_counts_offline_partitions() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.kill(1)
        await inform(cluster, 2)
        assert (await series(metrics_of(cluster, 2)))["tidelog_offline_partitions"] == 0
        assert (await series(metrics_of(cluster, 2, leads=True)))["tidelog_offline_partitions"] == 1


@on_virtual_time
async def test_partitions_have_no_series_unless_asked_for() -> None:
    async with MemoryCluster() as cluster:
        names = []
        for partition in range(3):
            await cluster.elect(1, tp=TopicPartition("t", partition))
            await until(lambda: not cluster.nodes[1].purgatories.produces)
            names.append(set(await series(metrics_of(cluster, 1))))
        assert names[1] == names[2]
        assert not any("partition=" in name for name in names[2])


@on_virtual_time
async def test_series_of_partitions_are_those_of_the_topic_asked_for() -> None:
    async with MemoryCluster() as cluster:
        for topic in ("t", "u"):
            await cluster.elect(1, tp=TopicPartition(topic, 0))
        of = metrics_of(cluster, 1)
        logs = {TopicPartition(topic, 0): SimpleNamespace(size_bytes=100) for topic in ("t", "u")}
        of.disks = SimpleNamespace(directories=(SimpleNamespace(path=Path("/d"), logs=logs),), failures={})

        def sized(samples: dict[str, float]) -> set[str]:
            return {name for name, value in samples.items() if "log_bytes" in name and value == 100}

        of_t, of_u = (f'tidelog_partition_log_bytes{{partition="0",topic="{topic}"}}' for topic in ("t", "u"))
        assert sized(await partition_series(of)) == {of_t, of_u}
        assert sized(await partition_series(of, "u")) == {of_u}
        assert sized(await partition_series(of, "unheard")) == set()


@on_virtual_time
async def test_partitions_beyond_the_limit_are_counted_in_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_metrics, "MAX_SINGLE_REPLICAS", 1)
    async with MemoryCluster() as cluster:
        for partition in range(3):
            await cluster.elect(1, tp=TopicPartition("t", partition))
        assert (await series(metrics_of(cluster, 1)))["tidelog_partitions"] == 3
        single = await partition_series(metrics_of(cluster, 1))
        assert single["tidelog_partitions_left_out"] == 2
        assert sum(name.startswith("tidelog_partition_log_end_offset{") for name in single) == 1


@on_virtual_time
async def test_bytes_of_each_directory_are_reported() -> None:
    async with MemoryCluster() as cluster:
        of = metrics_of(cluster, 1)
        logs = {TopicPartition("t", number): SimpleNamespace(size_bytes=100) for number in range(3)}
        directory = SimpleNamespace(path=Path("/d"), logs=logs)
        of.disks = SimpleNamespace(directories=(directory,), failures={Path("/e"): "gone"})
        samples = await series(of)
        assert samples['tidelog_log_directory_bytes{directory="/d"}'] == 300
        assert samples["tidelog_offline_log_directories"] == 1


@on_virtual_time
async def test_requests_are_counted_by_listener_and_api() -> None:
    now_ns = 0
    times = RequestTimes(lambda: now_ns)
    now_ns = 300_000
    for api in (ApiKey.PRODUCE, 60, 999):  # 60 is Kafka's DescribeCluster, which our own protocol lacks
        times.answered(api, 0)
    times.refused_with(MessageTooLargeError.code)
    async with MemoryCluster() as cluster:
        of = metrics_of(cluster, 1)
        of.request_times = {"clients": times}
        samples = await series(of)
    assert samples['tidelog_request_seconds_bucket{api="PRODUCE",door="clients",le="0.00025"}'] == 0
    assert samples['tidelog_request_seconds_bucket{api="PRODUCE",door="clients",le="0.0005"}'] == 1
    assert samples['tidelog_request_seconds_count{api="DESCRIBE_CLUSTER",door="clients"}'] == 1
    assert samples['tidelog_request_seconds_count{api="API_999",door="clients"}'] == 1
    assert samples['tidelog_request_seconds_sum{api="PRODUCE",door="clients"}'] == pytest.approx(0.0003)
    assert samples['tidelog_requests_refused_total{door="clients",error="MessageTooLargeError"}'] == 1


def test_duration_is_in_the_first_bucket_that_holds_it() -> None:
    durations = LatencyHistogram()
    for duration_ns in (0, 100_000, 100_001, 30_000_000_000, 30_000_000_001):
        durations.add(duration_ns)
    assert (durations.cumulated[:2], durations.cumulated[-2:]) == ([2, 3], [4, 5])


def test_label_may_contain_any_character() -> None:
    [text] = exposition.expose([Family("f", "m", Kind.GAUGE, ("path",)).add(1, 'a"b\n\\')])
    assert b'f{path="a\\"b\\n\\\\"} 1.0' in text


def test_exposition_in_parts_equals_the_whole() -> None:
    family = Family("f", "what it means", Kind.COUNTER, ("number",))
    for number in range(250):
        family.add(number, number)
    parts = list(exposition.expose([family]))
    lines = b"".join(parts).decode().splitlines()
    assert len(parts) == 3 and [line for line in lines if line.startswith("#")] == lines[:2]
    assert lines[2:] == [f'f_total{{number="{number}"}} {float(number)}' for number in range(250)]


@on_virtual_time
async def test_operations_document_lists_every_series() -> None:
    async with MemoryCluster() as cluster:
        of = metrics_of(cluster, 1)
        families = [*await of.read(), *await of.read_partitions()]
    document = (Path(__file__).parents[2] / "docs" / "OPERATIONS.md").read_text().splitlines()
    for family in families:
        name = family.name + ("_total" if family.kind is Kind.COUNTER else "")
        labels = ", ".join(family.labels)
        begin = f"| `{name}` | {family.kind.value} | {labels} | {family.meaning} | "
        assert [line for line in document if line.startswith(begin) and len(line) > len(begin) + 2], begin


@on_virtual_time
async def test_scrapes_take_at_most_a_tenth_of_the_time() -> None:
    loop = asyncio.get_running_loop()
    made: list[float] = []

    async def make(path: str) -> Answer:
        made.append(loop.time())
        await asyncio.sleep(0.01)
        return line(200, str(len(made)))

    async def ask(scrapes: Scrapes, until_s: float) -> None:
        while loop.time() < until_s:
            asked = loop.time()
            answer = await scrapes.next("/metrics")
            assert made[int(answer.body) - 1] >= asked, "the answer is not older than the request"

    scrapes = Scrapes(make)
    began = loop.time()
    await asyncio.gather(*(ask(scrapes, began + 1) for _ in range(30)))
    assert 9 <= len(made) <= 11


async def test_paths_below_metrics_choose_the_series() -> None:
    async def read() -> list[Family]:
        return [Family("whole", "the broker").add(1)]

    async def read_partitions(topic: str) -> list[Family]:
        return [Family("of", "partitions", labels=("topic",)).add(1, topic or "all")]

    endpoints = HealthEndpoints()
    endpoints.expose(cast(Metrics, SimpleNamespace(read=read, read_partitions=read_partitions)))
    bodies = {}
    for path in ("/metrics", "/metrics/partitions", "/metrics/partitions/orders", "/metricsx"):
        answer = await endpoints.answer(path)
        bodies[path] = answer.body if answer else None
    assert b"whole 1.0" in (bodies["/metrics"] or b"") and b"process_" in (bodies["/metrics"] or b"")
    assert (bodies["/metrics/partitions"] or b"").endswith(b'of{topic="all"} 1.0\n')
    assert (bodies["/metrics/partitions/orders"] or b"").endswith(b'of{topic="orders"} 1.0\n')
    assert bodies["/metricsx"] is None


@on_virtual_time
async def test_scrapes_of_different_paths_share_no_answer() -> None:
    async def make(path: str) -> Answer:
        return line(200, path)

    scrapes = Scrapes(make)
    answers = await asyncio.gather(*(scrapes.next(path) for path in ("/metrics", "/metrics/partitions", "/metrics")))
    assert [each.body for each in answers] == [b"/metrics\n", b"/metrics/partitions\n", b"/metrics\n"]


@on_virtual_time
async def test_cancelled_or_failed_scrape_does_not_affect_the_next() -> None:
    failing = True

    async def make(path: str) -> Answer:
        await asyncio.sleep(0.01)
        if failing:
            raise RuntimeError("a bug")
        return line(200, "metrics")

    scrapes = Scrapes(make)
    with pytest.raises(RuntimeError):
        await scrapes.next("/metrics")
    failing = False
    impatient = asyncio.create_task(scrapes.next("/metrics"))
    patient = asyncio.create_task(scrapes.next("/metrics"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).body == b"metrics\n"
