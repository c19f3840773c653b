"""Defines a benchmark and what it runs in: a directory, clusters, and the time that it may take."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tidelog import Admin, NewTopic, TopicPartition
from tidelog.errors import TidelogError
from tidelog.local.cluster import LocalCluster
from tools.bench.kafka_dump_check import KafkaDumpCheck
from tools.bench.results import Figure, NotMeasured

T = TypeVar("T")

REPLICAS = 3
MIN_IN_SYNC = 2
#: The client id of the admin of each cluster.
ADMIN = "bench-admin"
_LOOK_AGAIN_S = 0.02
_END_S = 10.0


class ClusterUnderTest:
    """A running local cluster of REPLICAS brokers or more; `local` has its processes, and `admin` is a client of it."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.admin = Admin(self.bootstrap_servers, client_id=ADMIN)

    @property
    def bootstrap_servers(self) -> str:
        return self.local.known_state().bootstrap_servers

    @property
    def broker_pids(self) -> list[int]:
        return [broker.pid for broker in self.local.known_state().brokers]

    def create_topic(self, partitions: int) -> list[TopicPartition]:
        """Create a topic with a new name and REPLICAS replicas; return its partitions once all replicas are in sync."""
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        configs = {"min.insync.replicas": str(MIN_IN_SYNC)}
        self.admin.create_topics([NewTopic(topic, partitions, REPLICAS, configs=configs)])
        self.wait_in_sync(topic)
        return [TopicPartition(topic, number) for number in range(partitions)]

    def wait_in_sync(self, topic: str, timeout_s: float = 60) -> None:
        wait_for(f"all replicas of {topic} in sync", lambda: self._in_sync(topic), timeout_s)

    def _in_sync(self, topic: str) -> bool:
        try:
            partitions = self.admin.describe_topics([topic])[0].partitions
        except TidelogError:
            return False
        return bool(partitions) and all(len(p.isr) == REPLICAS and p.leader >= 0 for p in partitions)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition of the topic by number; −1 if there is none."""
        return {p.partition: p.leader for p in self.admin.describe_topics([topic])[0].partitions}

    def controller(self) -> int:
        return wait_for("a controller", lambda: max(self.admin.describe_cluster().controller, 0))

    def kill(self, broker_id: int) -> None:
        """Send SIGKILL to a broker, and return when its process has ended; NotMeasured if that takes too long."""
        self._end(broker_id, signal.SIGKILL, _END_S)

    def shut_down(self, broker_id: int, timeout_s: float) -> None:
        """Send SIGTERM to a broker, and return when its process has ended; NotMeasured after `timeout_s`."""
        self._end(broker_id, signal.SIGTERM, timeout_s)

    def _end(self, broker_id: int, number: signal.Signals, timeout_s: float) -> None:
        process = self.local.broker_process(broker_id)
        assert process is not None
        process.signal(number)
        if not process.wait(int(timeout_s * 1000)):
            raise NotMeasured(f"broker {broker_id} has not ended {timeout_s:.0f} s after {number.name}")

    def pid(self, broker_id: int) -> int:
        return self.local.known_state().broker(broker_id).pid

    def restart(self, broker_id: int) -> None:
        """Wait until the broker has ended (NotMeasured after 30 s), start it, and wait until it is registered."""
        process = self.local.broker_process(broker_id)
        if process is not None and not process.wait(30_000):
            raise NotMeasured(f"broker {broker_id} did not end within 30 s")
        self.local.start_broker(broker_id)

    def close(self) -> None:
        self.admin.close()
        self.local.stop()


class BenchEnvironment:
    """Holds the settings of the command line, and the cluster that benchmarks of a run share.

    directory    the parent of all directories that benchmarks make
    seconds      how long a benchmark of a rate produces
    say          shows a line of progress
    profile      whether benchmarks show where the CPU time goes
    dump_check   has Kafka's dump tool read the logs that a benchmark wrote
    """

    def __init__(self, directory: Path, seconds: float, say: Callable[[str], None], *, profile: bool = False) -> None:
        self.directory = directory
        self.seconds = seconds
        self.say = say
        self.profile = profile
        self.dump_check = KafkaDumpCheck(say)
        self._shared: ClusterUnderTest | None = None
        self._open = ExitStack()

    @property
    def cluster(self) -> ClusterUnderTest:
        """Return the cluster that benchmarks share if they leave it as it was.

        The first call after `close` starts it.
        """
        if self._shared is None:
            self._shared = self._open.enter_context(self.fresh_cluster())
        return self._shared

    @property
    def has_cluster(self) -> bool:
        """Return whether the shared cluster runs: a benchmark has used it since the last `close`."""
        return self._shared is not None

    @contextmanager
    def fresh_cluster(self, brokers: int = REPLICAS, **settings: int) -> Iterator[ClusterUnderTest]:
        """Start a cluster of so many brokers in an empty directory, and yield it; then stop and remove it.

        The brokers have the shipped settings, except for those given.
        """
        with self.fresh_directory() as directory:
            local = LocalCluster(directory / "data", home=directory / "home")
            try:
                local.start(brokers, settings=settings)
                cluster = ClusterUnderTest(local)
                try:
                    yield cluster
                finally:
                    cluster.close()
            finally:
                local.stop()

    @contextmanager
    def fresh_directory(self) -> Iterator[Path]:
        """Yield an empty directory when no earlier writes wait for the disk, and remove it afterwards."""
        os.sync()
        directory = self.directory / uuid.uuid4().hex[:8]
        directory.mkdir()
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Stop and remove the shared cluster, if it runs, so that the next run gets another."""
        self._shared = None
        self._open.close()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement and its figures. `settings` describes in words what is measured.

    `measure` measures once, and returns a value for each figure by its key. A failed measurement raises NotMeasured, or
    the error that occurred.
    """

    name: str
    settings: str
    figures: tuple[Figure, ...]
    measure: Callable[[BenchEnvironment], Mapping[str, float]]


def leader_of_some(
    tps: Sequence[TopicPartition], leaders: Mapping[int, int], controller: int, *, is_controller: bool
) -> tuple[int, list[TopicPartition]]:
    """Return a broker that leads some of these partitions of one topic, and those of them that it leads.

    With `is_controller` the broker is the controller, else it is not; among several, the one with the lowest id.
    Raises NotMeasured if there is no such broker.

    leaders      the leader of each partition by number; −1: none
    controller   the broker that is the controller
    """
    fitting = (each for each in leaders.values() if each >= 0 and (each == controller) == is_controller)
    chosen = min(fitting, default=None)
    if chosen is None:
        raise NotMeasured(
            f"broker {controller} is the controller, {sorted(set(leaders.values()))} lead: no broker fits"
        )
    return chosen, [tp for tp in tps if leaders[tp.partition] == chosen]


def wait_for(what: str, look: Callable[[], T | None], timeout_s: float = 60, *, every_s: float = _LOOK_AGAIN_S) -> T:
    """Call `look` after pauses of `every_s` until its value is true, and return that value.

    Raises NotMeasured, which begins with `what`, if there is none within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if found := look():
            return found
        if time.monotonic() >= deadline:
            raise NotMeasured(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(every_s)


def command(name: str) -> str:
    """Return the path of a command that is installed beside the running interpreter; it is not checked."""
    return str(Path(sys.executable).with_name(name))
