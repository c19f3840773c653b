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

pytestmark = pytest.mark.xdist_group("broken connections")  # all tests share one cluster

#: The fewest and the most records of a test. It sends until enough connections were cut, because a busy machine puts
#: many records into one request.
FEWEST, MOST = 400, 8000
CUTS = 3
EVERY = 7
PRODUCERS = NAMES + PROGRAMS
#: The clients of the normal selection.
SELECTED = ("confluent-kafka", "aiokafka")


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
    with closing(Clients(proxied.bootstrap_servers)) as clients:
        yield clients


def until_cut(proxy: CuttingProxy) -> Iterator[Record]:
    """Yield records at a pace that lets a producer send many requests, until the proxy has cut enough connections."""
    enough = proxy.cuts + CUTS
    for number in range(MOST):
        if number >= FEWEST and proxy.cuts >= enough:
            return
        time.sleep(0.005)
        yield Record(b"%d" % number)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SELECTED else pytest.mark.slow) for name in PRODUCERS],
)
def test_idempotent_producer_repeats_nothing_over_cut_connections(
    proxied: KafkaCluster, proxied_client: Clients, proxy: CuttingProxy, name: str
) -> None:
    topic, cuts = f"cut-{name}", proxy.cuts
    proxied.create_topic(topic)
    acknowledged = proxied_client(name).produce(topic, until_cut(proxy), is_idempotent=True)
    assert proxy.cuts - cuts >= CUTS, "the connections were not cut"
    reader = proxied_client("confluent-kafka")
    _, end = reader.offset_range(topic)
    read = [each.value for each in reader.consume(topic, end)]
    assert read == [b"%d" % number for number in range(len(read))], "records are lost, repeated or out of order"
    assert len(read) >= FEWEST and [each.value for each in acknowledged] == read
