"""Measures the time from an empty directory to the first acknowledged produce: the command, then the client."""

from __future__ import annotations

import os
import subprocess
import time

from tidelog import Admin, NewTopic, Producer
from tidelog.local.state import load_state
from tools.bench.command_output import output_of
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, BenchEnvironment, Benchmark, command
from tools.bench.results import Figure

_READY = Figure("start-up.ready", "`tidelog up --detach` in a fresh directory returns after", "s")
_FIRST = Figure(
    "start-up.first",
    "`tidelog up` in a fresh directory, to the first acknowledged produce",
    "s",
    "≤ 2.5",
    kafka="start:seconds",
)


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_directory() as directory:
        data = directory / "data"
        environment = {**os.environ, "TIDELOG_HOME": str(directory / "home")}
        cluster = [command("tidelog"), "up", "--detach", "--data-dir", str(data)]
        started = time.monotonic()
        try:
            output_of(cluster, "tidelog up", environment=environment)
            ready = time.monotonic() - started
            state = load_state(data)
            assert state is not None
            with Admin(state.bootstrap_servers) as admin, Producer(state.bootstrap_servers) as producer:
                configs = {"min.insync.replicas": str(MIN_IN_SYNC)}
                admin.create_topics([NewTopic("first", 1, REPLICAS, configs=configs)])
                producer.send("first", os.urandom(100)).get(60)
                first = time.monotonic() - started
        finally:
            down = [command("tidelog"), "down", "--data-dir", str(data)]
            subprocess.run(down, env=environment, capture_output=True, check=False)
    return {_READY.key: ready, _FIRST.key: first}


BENCHMARK = Benchmark(
    "start-up",
    "embedded ZooKeeper and three brokers in an empty directory, a topic of one partition, one record",
    (_READY, _FIRST),
    measure,
)
