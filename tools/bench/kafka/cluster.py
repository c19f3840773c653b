"""Runs a real Kafka cluster on the same machine, through scripts that are not part of this project.

Their directory holds `kafka-cluster` (start and stop three brokers; fetches the jars with Maven, once), `measure.py`
and `failover.py` (one unmodified client, confluent-kafka). They need Java 17, Maven and `pip install confluent-kafka`.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench.command_output import output_of
from tools.bench.environment import BenchEnvironment, wait_for
from tools.bench.kafka.groups import LOAD, LOAD_HEAP, KafkaGroups
from tools.bench.results import Figure, NotMeasured
from tools.bench.table import number

_START_S = 300
_MEASURE_S = 900
#: The benchmarks that kill a leader, with the number of partitions of their topic.
_FAILOVERS = {"failover": 6, "failover-1000": 1000}
#: The part of `measure.py` that prints the figures with each prefix.
_PARTS = {
    "produce": "produce",
    "consume": "produce",
    "sync produce": "latency",
    "end to end": "latency",
    "offsets_for_times": "produce,lookup",  # these look-ups run among the records just produced
}


class Kafka:
    """Measures a Kafka cluster: start, idle, load, kill, stop. Values have the keys of `Figure.kafka`, NAME:FIELD.

    The constructor exits the process if the scripts or Kafka's client are missing.
    """

    def __init__(self, scripts: Path, env: BenchEnvironment) -> None:
        self._scripts = scripts.absolute()
        self._seconds = env.seconds
        self._say = env.say
        for name in ("kafka-cluster", "measure.py"):
            if not (self._scripts / name).is_file():
                sys.exit(f"bench: --kafka {scripts}: no {name} there")
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            sys.exit(f"bench: --kafka needs its client: {sys.executable} -m pip install confluent-kafka")
        # The jars lie beside the cluster's directory, so that later runs find them.
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelog-bench"
        self._directory = cache / "kafka"

    def measure(self, figures: Sequence[Figure], add: Callable[[Mapping[str, float]], None]) -> None:
        """Measure the figures that have a key of Kafka's once, and pass values to `add` as soon as they are known.

        A part that fails raises its error, so that it costs only the parts after it. The cluster is stopped and removed
        at the end in any case.
        """
        wanted = {figure.kafka for figure in figures if figure.kafka}
        if not wanted:
            return
        self.jars()
        shutil.rmtree(self._directory, ignore_errors=True)
        try:
            for values in self._parts(wanted):
                found = {name: value for name, value in values.items() if name in wanted}
                add(found)
                if found:
                    self._say(f"    {', '.join(f'{name} {number(value)}' for name, value in found.items())}")
        finally:
            gc.collect()  # the threads of its clients would go on looking for the brokers
            self._cluster("stop")
            shutil.rmtree(self._directory, ignore_errors=True)

    def _parts(self, wanted: set[str]) -> Iterator[dict[str, float]]:
        started = time.monotonic()
        addresses = self._start()
        yield {"start:seconds": time.monotonic() - started}
        brokers = self._brokers()
        yield {"idle:rss_mb": _largest_mb(brokers)}
        pids = ",".join(str(broker["pid"]) for broker in brokers.values())
        parts = {part for name in wanted for prefix, part in _PARTS.items() if name.startswith(prefix)}
        if parts:
            parts_asked = ("--only", ",".join(sorted(parts)))
            yield self._script("measure.py", addresses, "--pids", pids, "--seconds", str(self._seconds), *parts_asked)
            yield {"loaded:rss_mb": _largest_mb(self._brokers())}
        for name, partitions in _FAILOVERS.items():
            if any(each.startswith(f"{name}:") for each in wanted):
                yield self._failover(addresses, name, partitions)
        yield from self._groups(addresses).measure(wanted, self._seconds)
        if f"{LOAD}:million_s" in wanted:
            self._cluster("stop")
            shutil.rmtree(self._directory, ignore_errors=True)
            yield self._groups(self._start("--heap", LOAD_HEAP)).load()

    def _start(self, *options: str) -> str:
        addresses: str = json.loads(self._cluster("start", *options).splitlines()[-1])["bootstrap"]
        _first_acknowledgement(addresses)
        return addresses

    def _groups(self, addresses: str) -> KafkaGroups:
        return KafkaGroups(addresses, self._directory, kill=lambda broker: self._cluster("kill", broker))

    def _failover(self, addresses: str, name: str, partitions: int) -> dict[str, float]:
        pids = [f"--pid={each.removeprefix('broker-')}={broker['pid']}" for each, broker in self._brokers().items()]
        values = self._script("failover.py", addresses, *pids, "--partitions", str(partitions), name=name)
        for each, broker in self._brokers().items():
            if not broker["alive"]:
                self._cluster("restart", each)
                _first_acknowledgement(addresses)  # wait until the broker is back
        return values

    def jars(self) -> Path:
        """Return the directory of the jars. If it is missing, start and stop the cluster once, which fetches them."""
        jars = self._directory.parent / "kafka-lib"
        if not jars.is_dir():
            self._cluster("start")
            self._cluster("stop")
        return jars

    def _brokers(self) -> dict[str, dict[str, Any]]:
        processes = [json.loads(line) for line in self._cluster("status").splitlines()]
        return {each["name"]: each for each in processes if each["name"].startswith("broker-")}

    def _cluster(self, *what: str) -> str:
        command, *rest = what
        arguments: list[str | Path] = [sys.executable, self._scripts / "kafka-cluster", command, self._directory, *rest]
        return output_of(arguments, f"kafka-cluster {command}", timeout_s=_START_S)

    def _script(self, script: str, *arguments: str, name: str = "") -> dict[str, float]:
        """Run a script, and return the numbers that it prints, one JSON object a line, by keys NAME:FIELD.

        `name` replaces the objects' own names; "" keeps them. If a figure is printed twice, the later value counts.
        """
        values: dict[str, float] = {}
        command: list[str | Path] = [sys.executable, self._scripts / script, *arguments]
        for line in output_of(command, f"{script} {arguments[0]}", timeout_s=_MEASURE_S).splitlines():
            reported = json.loads(line)
            what = name or reported["name"]
            values |= {f"{what}:{field}": float(value) for field, value in reported.items() if _is_number(value)}
        return values


def _largest_mb(brokers: Mapping[str, Mapping[str, Any]]) -> float:
    return max(float(broker["rss_mb"]) for broker in brokers.values())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first_acknowledgement(addresses: str) -> None:
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic = f"first-{uuid.uuid4().hex[:8]}"
    new = NewTopic(topic, num_partitions=1, replication_factor=3, config={"min.insync.replicas": "2"})
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": addresses, "log_level": 0}
    admin = AdminClient(client)
    refusals: list[KafkaException] = []

    def created() -> bool:
        """Try to create the topic, and return whether Kafka did.

        Kafka refuses three replicas until every broker is registered.
        """
        try:
            admin.create_topics([new])[topic].result(_START_S)
        except KafkaException as refusal:
            refusals.append(refusal)
            return False
        return True

    try:
        wait_for("a topic of Kafka's", created)
    except NotMeasured as error:
        raise NotMeasured(f"{error}: {refusals[-1]}") from None
    producer = Producer({**client, "acks": "all"})
    producer.produce(topic, os.urandom(100))
    if producer.flush(60):
        raise NotMeasured("Kafka acknowledged nothing within 60 s")
