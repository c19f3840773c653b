"""Which versions of the protocol clients find."""

from __future__ import annotations

from contextlib import closing

import kafka
import pytest

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster


def test_kafka_python_takes_the_brokers_for_kafka_3_9(servers: str) -> None:
    with closing(kafka.KafkaConsumer(bootstrap_servers=servers.split(","), api_version=None)) as consumer:
        assert consumer.config["api_version"] == (3, 9)
