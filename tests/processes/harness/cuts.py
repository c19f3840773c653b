"""Cuts of the network between brokers, made by the kernel's own routing in a network namespace of their own.

To be run as a program inside `unshare --net`: the leader of a partition is cut off from both followers, time and
again, while a producer is at work. Prints for each cut, as a line of JSON, after how many seconds without it the next
record was acknowledged; then how many records there were in all, each read back where it was acknowledged.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.zookeeper import znodes
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.replica_files import assert_replicas_identical
from tests.processes.harness.waiting import wait_for
from tests.processes.harness.workload import Workload

#: The packets that are dropped: to the leader's port, from there, or both.
WHICH = {"requests": ("dport",), "answers": ("sport",), "both": ("dport", "sport")}
#: Each outlasts something else: TCP's first repetitions, most of them, the connection itself.
CUTS = [("both", 0.7), ("both", 3.3), ("answers", 6.0), ("requests", 6.0), ("both", 8.0)]


def prepare() -> None:
    """Require a namespace that has only a loopback, which is down, and no firewall rules."""
    for command in ("link set lo up", "rule add pref 100 lookup local", "rule del pref 0 lookup local"):
        subprocess.run(["ip", *command.split()], check=True)


@contextmanager
def cut(port: int, which: str) -> Iterator[None]:
    """Drop packets until the end of the block. Connections are not closed, so that both ends must detect the cut."""
    rules = [["pref", "10", "ipproto", "tcp", key, str(port), "blackhole"] for key in WHICH[which]]
    for rule in rules:
        subprocess.run(["ip", "rule", "add", *rule], check=True)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["ip", "rule", "del", *rule], check=True)


def replication_port(cluster: RunningCluster, broker_id: int) -> int:
    with cluster.zookeeper() as client:
        data, stat = client.get(znodes.broker_path(broker_id))
    return znodes.decode_broker(broker_id, data, stat.czxid).replication_endpoint.port


def main(directory: Path) -> None:
    prepare()
    with running_cluster(directory) as cluster:
        (tp,) = cluster.create_topic("t")
        port = replication_port(cluster, cluster.leader(tp))
        with Workload(cluster.bootstrap_servers, [tp]) as workload:
            for which, seconds in CUTS:
                with cut(port, which):
                    time.sleep(seconds)
                healed_at, before = time.monotonic(), workload.acknowledged
                wait_for("an acknowledgement", lambda before=before: workload.acknowledged > before)
                back_s = time.monotonic() - healed_at
                print(json.dumps({"cut": which, "seconds": seconds, "back_s": round(back_s, 2)}), flush=True)
                cluster.wait_in_sync(tp)
                workload.wait_acknowledged(200)
        records = workload.check(cluster.bootstrap_servers)
        print(json.dumps({"records": records, "batches": assert_replicas_identical(cluster, [tp])}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
