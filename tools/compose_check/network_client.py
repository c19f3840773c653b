"""Reads and writes a topic by kafka-python in a container of the compose network.

    python network_client.py BOOTSTRAP TOPIC COUNT < VALUES

The program reads the first COUNT values of the topic in a group, and produces each line of its standard input. Then it
prints one JSON object: `values`, which it read, and `brokers`, the addresses by broker id that the bootstrap broker
returned.
"""

from __future__ import annotations

import json
import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

_LONGEST_S = 60


def main(bootstrap: str, topic: str, count: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    brokers = {each["broker_id"]: f"{each['host']}:{each['port']}" for each in admin.describe_cluster()["brokers"]}
    admin.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id="network", auto_offset_reset="earliest")
    values: list[str] = []
    deadline = time.monotonic() + _LONGEST_S
    while len(values) < count and time.monotonic() < deadline:
        values += [record.value.decode() for each in consumer.poll(500).values() for record in each]
    consumer.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    sent = [producer.send(topic, line.rstrip("\n").encode()) for line in sys.stdin]
    for each in sent:
        each.get(_LONGEST_S)
    producer.close()
    print(json.dumps({"brokers": brokers, "values": values}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
