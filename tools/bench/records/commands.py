"""Measures `tidelog produce` and `tidelog consume`, from start to exit, and the API on the same lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tidelog import Producer, TopicPartition
from tools.bench.command_output import output_of
from tools.bench.environment import BenchEnvironment, Benchmark, ClusterUnderTest
from tools.bench.records.load import FLUSH_S
from tools.bench.records.reading import read_records
from tools.bench.results import Figure, NotMeasured

_LINES_PER_S = 200_000
_PARTITIONS = 6
_END_S = 600.0
_COMMAND = (sys.executable, "-P", "-c", "from tidelog.cli.program import main; main()")
_RATIO_AIM = "≥ 0.7"

API_PRODUCE = Figure(
    "commands.api-produce", "produce short lines by the API, without key, record by record", "records/s"
)
PRODUCE = Figure(
    "commands.produce", "`tidelog produce` of short lines, start and end included", "records/s", bound=API_PRODUCE.key
)
PRODUCE_RATIO = Figure("commands.produce-ratio", "… of the API's rate", "×", _RATIO_AIM)
API_CONSUME = Figure("commands.api-consume", "consume short lines by the API, record by record", "records/s")
CONSUME = Figure(
    "commands.consume", "`tidelog consume` of short lines, start and end included", "records/s", bound=API_CONSUME.key
)
CONSUME_RATIO = Figure("commands.consume-ratio", "… of the API's rate", "×", _RATIO_AIM)


def _measure(env: BenchEnvironment) -> dict[str, float]:
    written, read_back = env.directory / "lines", env.directory / "read-back"
    lines = [b"line %d of a file of short ones" % number for number in range(round(_LINES_PER_S * env.seconds))]
    written.write_bytes(b"\n".join(lines) + b"\n")
    by_api, by_command = env.cluster.create_topic(_PARTITIONS), env.cluster.create_topic(_PARTITIONS)
    try:
        found = {
            API_PRODUCE.key: len(lines) / _produce(env.cluster, by_api, lines),
            PRODUCE.key: len(lines) / _run(env.cluster, "produce", by_command, str(written), "--quiet"),
            API_CONSUME.key: len(lines) / _consume(env.cluster, by_api, lines),
            CONSUME.key: len(lines) / _run(env.cluster, "consume", by_command, output=read_back),
        }
        if read_back.stat().st_size != written.stat().st_size:
            raise NotMeasured(f"{written.stat().st_size} B were produced, {read_back.stat().st_size} B consumed")
    finally:
        written.unlink()
        read_back.unlink(missing_ok=True)
    return {
        **found,
        PRODUCE_RATIO.key: found[PRODUCE.key] / found[API_PRODUCE.key],
        CONSUME_RATIO.key: found[CONSUME.key] / found[API_CONSUME.key],
    }


def _produce(cluster: ClusterUnderTest, tps: Sequence[TopicPartition], lines: Sequence[bytes]) -> float:
    """Send each line as a record; return the seconds from the first `send` to the last acknowledgement.

    Raises NotMeasured if a record was not acknowledged.
    """
    with Producer(cluster.bootstrap_servers, client_id="bench") as producer:
        producer.partitions_for(tps[0].topic)
        started = time.perf_counter()
        futures = [producer.send(tps[0].topic, line) for line in lines]
        producer.flush(FLUSH_S)
        took_s = time.perf_counter() - started
    if failed := sum(not future.succeeded() for future in futures):
        raise NotMeasured(f"{failed} of {len(futures)} futures were not acknowledged")
    return took_s


def _consume(cluster: ClusterUnderTest, tps: Sequence[TopicPartition], lines: Sequence[bytes]) -> float:
    """Read the topic; return the seconds from the first poll to the last record.

    Raises NotMeasured if the number or the bytes of the records differ from those of the lines.
    """
    read = read_records(cluster.bootstrap_servers, tps, len(lines))
    if (read.records, read.size_bytes) != (len(lines), sum(map(len, lines))):
        raise NotMeasured(f"{len(lines)} records were acknowledged, {read.records} read")
    return read.seconds


def _run(
    cluster: ClusterUnderTest, name: str, tps: Sequence[TopicPartition], *rest: str, output: Path | None = None
) -> float:
    """Run the command of `tidelog` on the topic, and return the seconds from its start to its exit.

    `output` gets its standard output; None discards it. Raises NotMeasured if the command fails.
    """
    arguments = [*_COMMAND, name, tps[0].topic, *rest, "--bootstrap-servers", cluster.bootstrap_servers]
    with (output or Path("/dev/null")).open("wb") as target:
        started = time.perf_counter()
        output_of(arguments, f"tidelog {name}", timeout_s=_END_S, stdout=target)
        return time.perf_counter() - started


BENCHMARK = Benchmark(
    "commands",
    f"{_PARTITIONS} partitions, a file of lines of some 35 B; the API's side is timed without its start",
    (API_PRODUCE, PRODUCE, PRODUCE_RATIO, API_CONSUME, CONSUME, CONSUME_RATIO),
    _measure,
)
