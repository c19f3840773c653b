"""Starts a real Kafka from its jars: ZooKeeper and three brokers on loopback.

The settings are Kafka's defaults, except for the replication factor (3), `min.insync.replicas` (2), the delay of the
first rebalance (0) and the tick of ZooKeeper (500 ms). Heap and collector are those of Kafka's own start script for
brokers of 512 MB.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidelog.errors import LocalError
from tidelog.local.java import find_java
from tidelog.local.processes.ports import LOOPBACK, choose_port
from tools.bench.environment import MIN_IN_SYNC, REPLICAS, wait_for
from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured
from tools.supervised_process import Stop, end, start

_ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
_BROKER = "kafka.Kafka"
_HEAP_MB = 512
_COLLECTOR = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_STOP = Stop(signal.SIGTERM, 15.0)
_START_S = 120.0
_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
"""


def jars_in(directory: Path) -> Path | None:
    """Return the directory of Kafka's jars: this one, or `libs` or `kafka-lib` in it; None if there are none."""
    places = (directory, directory / "libs", directory / "kafka-lib")
    return next((place for place in places if any(place.glob("kafka_2.*.jar"))), None)


class KafkaBrokers(Target):
    """A running cluster; started by `kafka_brokers`. Output of its processes goes to `*.out` in its directory."""

    def __init__(self, directory: Path, jars: Path, java: Path) -> None:
        self._directory = directory
        self._java: list[str | Path] = [java, f"-Dlog4j.configuration=file:{directory}/log4j.properties"]
        self._classpath = ["-cp", f"{jars}/*"]
        self._held = ExitStack()  # a broker that was killed starts again
        self._zookeeper_port = choose_port(self._held)
        self._ports = {broker_id: choose_port(self._held) for broker_id in range(1, REPLICAS + 1)}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._zookeeper: subprocess.Popen[bytes] | None = None
        super().__init__(",".join(f"{LOOPBACK}:{port}" for port in self._ports.values()))

    @property
    def pids(self) -> Mapping[int, int]:
        return {broker_id: process.pid for broker_id, process in self._processes.items()}

    def start(self) -> None:
        """Start ZooKeeper and all brokers, and wait until every broker is registered."""
        (self._directory / "log4j.properties").write_text(_LOG4J)
        config = self._directory / "zookeeper.cfg"
        config.write_text(
            f"tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\ndataDir={self._directory}/zookeeper\n"
            f"clientPort={self._zookeeper_port}\nclientPortAddress={LOOPBACK}\nadmin.enableServer=false\n"
            "maxClientCnxns=0\n"
        )
        command: list[str | Path] = [*self._java, "-Xmx128m", *self._classpath, _ZOOKEEPER, config]
        self._zookeeper = self._spawn("zookeeper", command)
        _wait_for_port(self._zookeeper_port, self._zookeeper)
        for broker_id in self._ports:
            self._start_broker(broker_id)
        for broker_id, port in self._ports.items():
            _wait_for_port(port, self._processes[broker_id])
        wait_for("all of Kafka's brokers to be registered", lambda: len(self.brokers()) == REPLICAS, _START_S)

    def _start_broker(self, broker_id: int) -> None:
        port, name = self._ports[broker_id], f"broker-{broker_id}"
        config = self._directory / f"{name}.properties"
        config.write_text(
            f"broker.id={broker_id}\nlisteners=PLAINTEXT://{LOOPBACK}:{port}\nlog.dirs={self._directory}/{name}\n"
            f"zookeeper.connect={LOOPBACK}:{self._zookeeper_port}\ndefault.replication.factor={REPLICAS}\n"
            f"min.insync.replicas={MIN_IN_SYNC}\noffsets.topic.replication.factor={REPLICAS}\n"
            f"transaction.state.log.replication.factor={REPLICAS}\ntransaction.state.log.min.isr={MIN_IN_SYNC}\n"
            "auto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n"
        )
        heap = [f"-Xmx{_HEAP_MB}m", f"-Xms{_HEAP_MB}m", *_COLLECTOR]
        self._processes[broker_id] = self._spawn(name, [*self._java, *heap, *self._classpath, _BROKER, config])

    def _spawn(self, name: str, command: list[str | Path]) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.out").open("ab") as output:
            return start(command, stdout=output, cwd=self._directory)

    def kill(self, broker_id: int) -> None:
        process = self._processes[broker_id]
        process.kill()
        process.wait()

    def shut_down(self, broker_id: int, timeout_s: float) -> None:
        process = self._processes[broker_id]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"Kafka's broker {broker_id} has not ended {timeout_s:.0f} s after SIGTERM") from None

    def restart(self, broker_id: int) -> None:
        """Start a broker whose registration has ended; a killed broker's lasts as long as its session."""
        self._start_broker(broker_id)
        _wait_for_port(self._ports[broker_id], self._processes[broker_id])
        wait_for(f"Kafka's broker {broker_id} to be registered", lambda: broker_id in self.brokers(), _START_S)

    def stop(self) -> None:
        """Ask the brokers to stop, then ZooKeeper, and kill those that do not."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in [*self._processes.values(), *([self._zookeeper] if self._zookeeper else [])]:
            end(process, _STOP)
        self._held.close()


@contextmanager
def kafka_brokers(directory: Path, jars: Path) -> Iterator[KafkaBrokers]:
    """Run a cluster in an empty directory, from the jars in `jars`, while the block runs."""
    try:
        java = find_java()
    except LocalError as error:
        raise NotMeasured(str(error)) from None
    with ExitStack() as stack:
        cluster = KafkaBrokers(directory, jars, java)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    def is_open() -> bool:
        if process.poll() is not None:
            raise NotMeasured(f"a process of Kafka's ended before it listened on port {port}: see its output")
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0

    wait_for(f"a process of Kafka's on port {port}", is_open, _START_S)
