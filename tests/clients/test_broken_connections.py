"""Idempotent producers whose connections break after the brokers have appended and before the answer arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.clients.adapters.foreign_client import Record
from tests.clients.adapters.registry import NAMES, PROGRAMS, Clients
from tests.clients.cutting_proxy import CuttingProxy
from tests.clients.kafka_cluster import KafkaCluster, kafka_cluster

#: All tests share one cluster. A busy machine sends too few batches in the time, so that no connection is cut.
pytestmark = [pytest.mark.xdist_group("broken connections"), pytest.mark.slow]

COUNT = 400
EVERY = 7
#: kcat sends so few requests that none of its connections is cut. Its library is that of confluent-kafka.
PRODUCERS = tuple(name for name in NAMES + PROGRAMS if name != "kcat")


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    started = CuttingProxy(EVERY)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, proxy: CuttingProxy) -> Iterator[KafkaCluster]:
    """Three brokers that clients reach through the proxy only."""
    with kafka_cluster(tmp_path_factory.mktemp("proxied"), through=proxy.port_for) as started:
        yield started


@pytest.fixture(scope="module")
def proxied_client(proxied: KafkaCluster) -> Iterator[Clients]:
    with closing(Clients(proxied.kafka_bootstrap_servers)) as clients:
        yield clients


def slowly() -> Iterator[Record]:
    """Yield records at a pace that lets a producer send many requests."""
    for number in range(COUNT):
        time.sleep(0.005)
        yield Record(b"%d" % number)


@pytest.mark.parametrize("name", PRODUCERS)
def test_idempotent_producer_repeats_nothing_over_cut_connections(
    proxied: KafkaCluster, proxied_client: Clients, proxy: CuttingProxy, name: str
) -> None:
    topic, cuts = f"cut-{name}", proxy.cuts
    proxied.create_topic(topic)
    acknowledged = proxied_client(name).produce(topic, slowly(), is_idempotent=True)
    assert proxy.cuts - cuts >= 3, "the connections were not cut"
    reader = proxied_client("confluent-kafka")
    _, end = reader.offset_range(topic)
    read = [each.value for each in reader.consume(topic, end)]
    assert read == [b"%d" % number for number in range(COUNT)], "records are lost, repeated or out of order"
    assert [each.value for each in acknowledged] == read
