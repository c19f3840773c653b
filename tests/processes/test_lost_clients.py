"""Clients that are killed in the middle of what they do."""

from __future__ import annotations

import pytest

from tests.processes.harness.clients import client
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.leaks import sockets_of, waiting_requests
from tests.processes.harness.ordeal import ordeal
from tests.processes.harness.replica_files import assert_replicas_identical
from tests.processes.harness.waiting import require_bite, wait_for
from tests.processes.harness.workload import read_all
from tidelog import Consumer, TopicPartition

pytestmark = pytest.mark.slow

CLIENTS = 3

#: Always has many records on their way that it has not heard of.
PRODUCE = """
import sys
from collections import deque
from itertools import count
from tidelog import Producer
with Producer(sys.argv[1]) as producer:
    underway = deque()
    for number in count():
        underway.append((number, producer.send("t", b"%d" % number, partition=0)))
        if len(underway) > 500:
            oldest, future = underway.popleft()
            print(future.get(60).offset, oldest, flush=True)
"""

#: Waits for what never comes.
CONSUME = """
import sys
from tidelog import Consumer, TopicPartition
settings = {"auto_offset_reset": "latest", "fetch_min_bytes": 1 << 20, "fetch_max_wait_ms": 3_000}
with Consumer(bootstrap_servers=sys.argv[1], **settings) as consumer:
    consumer.assign([TopicPartition("idle", 0)])
    print("ready", flush=True)
    while True:
        consumer.poll(timeout_ms=1000)
"""


def test_killed_producer_leaves_acknowledged_records_once(
    cluster: RunningCluster,
) -> None:
    (tp,) = cluster.create_topic("t")
    (other,) = cluster.create_topic("other")
    (idle,) = cluster.create_topic("idle", replicas=2)
    acknowledged: list[tuple[int, int]] = []
    most_waiting = max(waiting_requests(cluster) for _ in range(20))
    with ordeal(cluster, [other]):
        before = sockets_of(cluster)
        for _ in range(CLIENTS):
            with (
                client(CONSUME, cluster.bootstrap_servers) as waiting,
                client(PRODUCE, cluster.bootstrap_servers) as producing,
            ):
                assert producing.stdout is not None and waiting.stdout is not None
                assert waiting.stdout.readline() == "ready\n"
                for _ in range(120):
                    offset, number = map(int, producing.stdout.readline().split())
                    acknowledged.append((offset, number))
                producing.kill()
                waiting.kill()
                whole_lines = producing.stdout.read().rpartition("\n")[0].splitlines()
                acknowledged += [(int(offset), int(number)) for offset, number in map(str.split, whole_lines)]
        wait_for("the brokers to have closed what the clients opened", lambda: sockets_of(cluster) <= before + 2)
    wait_for("no request of an ended client to wait", lambda: waiting_requests(cluster) <= most_waiting)
    log = read_all(cluster.bootstrap_servers, [tp])[tp]
    assert set(acknowledged) <= set(log)
    left = len(log) - len(acknowledged)
    require_bite("no client left anything unacknowledged", left and f"{left} records of the killed unacknowledged")
    assert_replicas_identical(cluster, [tp])
    lives: list[list[int]] = []
    for _, number in log:
        if number == 0:
            lives.append([])
        lives[-1].append(number)
    assert len(lives) == CLIENTS
    assert all(life == list(range(len(life))) for life in lives)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.end_offsets([TopicPartition(*idle)])[idle] == 0
