"""Lists all benchmarks in the order in which they run, and the tables that have an order of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.bench import cluster_table
from tools.bench.clusters import (
    cluster_failover,
    cluster_idle,
    cluster_slow,
    failover,
    idle,
    kafka_peers,
    leader_move,
    start_up,
    stopped_leader,
)
from tools.bench.environment import Benchmark
from tools.bench.groups import commits, look_ups, offsets_load, rebalance
from tools.bench.kafka_clients.comparisons import COMPARISONS
from tools.bench.records import columns, commands, consume, end_to_end, latency, memory, produce
from tools.bench.results import Figure
from tools.bench.scale import busy, connections, one_group, twelve_brokers
from tools.bench.spark import spark_read
from tools.bench.without_cluster import checker, codec, hardware_floor, kafka_listener, storage

BENCHMARKS: list[Benchmark] = [
    start_up.BENCHMARK,
    idle.BENCHMARK,
    hardware_floor.BENCHMARK,
    codec.BENCHMARK,
    checker.BENCHMARK,
    *storage.BENCHMARKS,
    latency.BENCHMARK,
    end_to_end.BENCHMARK,
    *produce.BENCHMARKS,
    *consume.BENCHMARKS,
    *columns.BENCHMARKS,
    commands.BENCHMARK,
    memory.BENCHMARK,
    look_ups.BENCHMARK,
    commits.BENCHMARK,
    rebalance.BENCHMARK,
    offsets_load.BENCHMARK,
    spark_read.BENCHMARK,
    stopped_leader.BENCHMARK,
    leader_move.BENCHMARK,
    failover.BENCHMARK,
    cluster_idle.BENCHMARK,
    cluster_failover.BENCHMARK,
    cluster_slow.BENCHMARK,
    *(comparison.benchmark() for comparison in COMPARISONS),
    kafka_listener.BENCHMARK,
    kafka_peers.BENCHMARK,
    twelve_brokers.BENCHMARK,
    one_group.BENCHMARK,
    connections.BENCHMARK,
    busy.BENCHMARK,
]

#: Names that stand for a whole table, with the keys of its rows.
TABLES: Mapping[str, Sequence[str]] = {
    "cluster": cluster_table.KEYS,
    # Comparisons that need clusters of their own take long.
    "kafka": [figure.key for comparison in COMPARISONS if not comparison.fresh for figure in comparison.figures()],
}


def select(names: Sequence[str]) -> tuple[list[Benchmark], list[Figure]]:
    """Return the benchmarks that `names` select, in the order in which they run, and the rows to show.

    A name is that of a table or of a benchmark, or else the beginning of benchmarks' names. No names select all
    benchmarks. The rows are the figures of the table or of the benchmarks; a benchmark that measures only the bound of
    a row is selected, too.
    Raises ValueError with the names that are unknown.
    """
    unknown = [name for name in names if name not in TABLES and not _named(name)]
    if unknown:
        known = [*TABLES, *(benchmark.name for benchmark in BENCHMARKS)]
        raise ValueError(f"no benchmark {', '.join(unknown)}: there are {', '.join(known)}")
    rows: dict[str, Figure] = {}
    for name in names or [""]:
        rows |= {figure.key: figure for figure in _rows(name)}
    needed = {*rows, *(figure.bound for figure in rows.values())}
    return [each for each in BENCHMARKS if any(figure.key in needed for figure in each.figures)], list(rows.values())


def _rows(name: str) -> list[Figure]:
    if name in TABLES:
        figures = {figure.key: figure for benchmark in BENCHMARKS for figure in benchmark.figures}
        return [figures[key] for key in TABLES[name]]
    return [figure for benchmark in _named(name) for figure in benchmark.figures]


def _named(name: str) -> list[Benchmark]:
    """Return the benchmark of this name, or else those whose names begin with it."""
    exact = [benchmark for benchmark in BENCHMARKS if benchmark.name == name]
    return exact or [benchmark for benchmark in BENCHMARKS if benchmark.name.startswith(name)]
