"""Measures one consumer on a stored topic from its start, and on a topic that another process writes at full speed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from tidelog import Consumer
from tools.bench.command_output import last_line
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest
from tools.bench.records.load import in_words
from tools.bench.records.reading import Read, read_columns, read_records
from tools.bench.records.ready_made import BatchLoad
from tools.bench.results import Figure, NotMeasured
from tools.supervised_process import KILL, supervised

_PARTITIONS = 6
_WRITER_END_S = 180.0
_SILENCE_S = 30.0


def benchmark(size: int, aim: str) -> Benchmark:
    """Return the benchmark of one consumer that reads values of `size` bytes from six partitions.

    `aim` is that of reading a stored topic.
    """
    name = f"consume-{size}B"
    values = in_words(size)
    records = Figure(
        f"{name}.records",
        f"consume {values} from the start, record by record",
        "MB/s",
        aim,
        kafka=f"consume {size}B x{_PARTITIONS}:mb_per_s",
    )
    columns = Figure(f"{name}.columns", "… as whole batches, decoded to columns", "MB/s", aim)
    along = Figure(f"{name}.along", "… record by record, while a process produces all it can on the same cores", "MB/s")

    def measure(env: BenchEnvironment) -> dict[str, float]:
        load = BatchLoad(env.cluster, size, _PARTITIONS)
        load.produce(env.seconds / 2)
        found = {}
        ways: dict[Figure, Callable[..., Read]] = {records: read_records, columns: read_columns}
        for figure, way in ways.items():
            read = way(load.cluster.bootstrap_servers, load.tps, load.sent)
            _check_complete(read, load.sent, size)
            found[figure.key] = read.megabytes_per_s
        return {**found, along.key: _while_producing(env.cluster, size, env.seconds)}

    settings = f"{_PARTITIONS} partitions written as 64 KB batches, one consumer with its defaults, values looked at"
    return Benchmark(name, settings, (records, columns, along), measure)


def _while_producing(cluster: ClusterUnderTest, size: int, seconds: float) -> float:
    tps = cluster.create_topic(_PARTITIONS)
    servers = cluster.bootstrap_servers
    arguments = (servers, tps[0].topic, str(_PARTITIONS), str(size), str(seconds))
    writer = [sys.executable, "-P", "-m", "tools.bench.records.ready_made", *arguments]
    with Consumer(bootstrap_servers=servers, client_id="bench", auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        consumer.poll()
        with supervised(writer, KILL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            read = _follow(consumer, process)
            output, errors = process.communicate(timeout=_WRITER_END_S)
    if process.returncode:
        raise NotMeasured(f"the writer: {last_line(errors.decode())}")
    _check_complete(read, int(output), size)
    return read.megabytes_per_s


def _follow(consumer: Consumer, writer: subprocess.Popen[bytes]) -> Read:
    """Read until the writer has ended and a poll returns no record, or until no record has come for 30 s.

    The result's seconds are from the first to the last poll with records.
    """
    records = size_bytes = 0
    first = last = time.perf_counter()
    while time.perf_counter() - last < _SILENCE_S:
        ended = writer.poll() is not None
        polled = consumer.poll(timeout_ms=500)
        if polled:
            last = time.perf_counter()
            first = first if records else last
            for each in polled.values():
                records += len(each)
                size_bytes += sum(len(record.value or b"") for record in each)
        elif ended:
            break
    return Read(records, size_bytes, last - first)


def _check_complete(read: Read, count: int, size: int) -> None:
    if (read.records, read.size_bytes) != (count, count * size):
        raise NotMeasured(f"{count} records of {size} B were acknowledged, {read.records} read")


BENCHMARKS = [benchmark(1000, "≥ 150"), benchmark(100, "")]
