"""Measures failover with the client's default settings: SIGKILL of a leader to the next acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tools.bench.environment import REPLICAS
from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

PARTITIONS = 6
PACE_S = 0.005
_BEFORE_S = 2.0
_TIMEOUT_S = 60.0


def measure(target: Target) -> dict[str, float]:
    """Return as `gap` the time (s) from a leader's kill until each partition that it led has acknowledged a record.

    A record goes to each partition every PACE_S. Only records that were sent after the kill count. The killed
    leader is not the controller, unless the controller leads all partitions.
    """
    from confluent_kafka import Producer

    topic = target.create_topic(PARTITIONS)
    leaders, controller = target.leaders(topic), target.controller()
    victim = min(leaders.values(), key=lambda leader: (leader == controller, leader))
    led = {partition for partition, leader in leaders.items() if leader == victim}
    producer = Producer({**target.client, "acks": "all"})
    killed_at = 0.0
    recovered: dict[int, float] = {}

    def delivered(sent_at: float) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            partition = message.partition()
            if error is None and killed_at and sent_at > killed_at and partition is not None:
                recovered.setdefault(partition, time.monotonic())

        return on_delivery

    def send_for(duration_s: float, is_over: Callable[[], bool]) -> None:
        begun = time.monotonic()
        while not is_over() and time.monotonic() < begun + duration_s:
            now = time.monotonic()
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x" * 100, partition=partition, on_delivery=delivered(now))
            producer.poll(PACE_S)
            time.sleep(max(0.0, now + PACE_S - time.monotonic()))

    send_for(_BEFORE_S, lambda: False)
    begun = time.monotonic()
    target.kill(victim)
    killed_at = time.monotonic()
    send_for(_TIMEOUT_S, lambda: led <= recovered.keys())
    producer.flush(_TIMEOUT_S)
    target.restart(victim)
    target.wait_in_sync(topic, PARTITIONS)
    target.delete_topic(topic)
    if not led <= recovered.keys():
        raise NotMeasured(f"no acknowledgement within {_TIMEOUT_S:.0f} s of the death of a leader")
    assert len(target.pids) == REPLICAS
    return {"gap": max(recovered[partition] for partition in led) - begun}
