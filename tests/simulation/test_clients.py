"""Test real clients in a simulated cluster: with its connections, its time, and random numbers of its seed."""

from __future__ import annotations

from random import Random

from tidelog.aio import Admin, Consumer, Producer
from tidelog.client.environment import ClientEnvironment
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import NewTopic
from verify.simulation.cluster.cluster import CLIENT_PORT, Cluster, address_of
from verify.simulation.scenario import Scenario
from verify.simulation.seeds import simulate
from verify.simulation.trace import Trace

TP = TopicPartition("orders", 0)


def simulated(seed: int) -> tuple[list[int], list[bytes | None], int | None, int, int]:
    """Return offsets, read records, committed offsets, a look-up and the end time; a broker is killed in between."""
    cluster = Cluster(seed, trace=Trace())
    for broker in cluster.brokers.values():
        broker.start()
    assert cluster.run_until(lambda: all(broker.serves for broker in cluster.brokers.values()))
    cluster.run(1)
    client = cluster.client()
    environment = ClientEnvironment(clock=client.clock, opener=client.open, rng=Random(seed))
    offsets: list[int] = []

    async def produce() -> None:
        async with environment.create(Admin, cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic("orders", 1, 3, configs={"min.insync.replicas": "2"})], 30_000)
        async with environment.create(Producer, cluster.bootstrap, enable_idempotence=True) as producer:
            for number in range(20):
                if number == 10:
                    cluster.later(0, killed.kill)
                placed = await producer.send_and_wait("orders", b"%d" % number, partition=0, timestamp_ms=number)
                offsets.append(placed.offset)

    async def consume() -> tuple[list[bytes | None], int | None, int]:
        async with environment.create(
            Consumer, cluster.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(["orders"])
            values: list[bytes | None] = []
            while len(values) < 20:
                values += [record.value for each in (await consumer.poll(1000)).values() for record in each]
            await consumer.commit()
            found = (await consumer.offsets_for_times({TP: 13}))[TP]
            assert found is not None
            return values, await consumer.committed(TP), found.offset

    killed = cluster.brokers[1 + seed % 3]
    cluster.within(client, produce(), 120)
    killed.start()
    values, committed, looked_up = cluster.within(client, consume(), 120)
    over_ns = cluster.timeline.now_ns
    cluster.vanish()
    return offsets, values, committed, looked_up, over_ns


def test_clients_are_right_and_deterministic_while_a_broker_is_killed() -> None:
    first = simulated(7)
    offsets, values, committed, looked_up, _ = first
    assert offsets == [*range(20)]
    assert values == [b"%d" % number for number in range(20)]
    assert (committed, looked_up) == (20, 13)
    assert simulated(7) == first


def test_each_connection_of_a_client_counts_as_a_resource_of_the_broker() -> None:
    cluster = Cluster(7, trace=Trace())
    for broker in cluster.brokers.values():
        broker.start()
    assert cluster.run_until(lambda: all(broker.serves for broker in cluster.brokers.values()))
    cluster.run(1)
    client, broker = cluster.client(), cluster.brokers[2]

    def held() -> int:
        resources = broker.resources("now")
        assert resources is not None
        return resources.fds

    async def connect() -> Connection:
        endpoint = Endpoint(address_of(2), CLIENT_PORT)
        return await client.open(endpoint, client_id="c", timeout_ms=1_000, cluster_id="")

    assert held() == 0
    connection = cluster.within(client, connect())
    assert (connection.broker_id, held()) == (2, 1)
    client.process.call_soon(connection.close)
    cluster.run(1)
    assert held() == 0
    cluster.vanish()


def test_burst_fills_batches_and_segments() -> None:
    shown: list[str] = []
    outcome = simulate(Scenario(7, 15, ("burst",), ()), shown.append)
    assert not outcome.wrong
    appends = [line.split() for line in shown if line.split()[1] == "Append" and line.endswith("leader")]
    assert len(appends) >= 10
    assert max(int(last) - int(first) for *_, first, last, _, _ in appends) >= 50


def test_other_seed_gives_other_delays() -> None:
    scenarios = [simulated(seed) for seed in (1, 2)]
    assert scenarios[0][:4] == scenarios[1][:4]
    assert scenarios[0][4] != scenarios[1][4]
