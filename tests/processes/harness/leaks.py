"""The resources that brokers hold for clients, and must release when these have ended."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tests.processes.harness.cluster import RunningCluster


def sockets_of(cluster: RunningCluster) -> int:
    """Files that all brokers together have open."""
    processes = (cluster.local.broker_process(each) for each in cluster.broker_ids)
    return sum(len(list(Path(f"/proc/{process.pid}/fd").iterdir())) for process in processes if process is not None)


def waiting_requests(cluster: RunningCluster) -> int:
    """Return the number of requests in the purgatories of all brokers."""
    found = 0
    for broker in cluster.local.known_state().brokers:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found += sum(int(float(line.split()[-1])) for line in lines if line.startswith("tidelog_purgatory_size{"))
    return found
