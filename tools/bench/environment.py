"""Where the benchmarks run: a directory, clusters in it, and how long each may take."""

from __future__ import annotations

import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from tidelog import Admin, NewTopic, TopicPartition
from tidelog.errors import TidelogError
from tidelog.local.cluster import LocalCluster
from tools.bench.kafka_dump_check import Judge
from tools.bench.results import NotMeasured

T = TypeVar("T")

REPLICAS = 3
MIN_IN_SYNC = 2
_LOOK_AGAIN_S = 0.02
_END_MS = 10_000


class ClusterUnderTest:
    """A local cluster of three brokers with the settings that are shipped; `local` reaches its processes."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.admin = Admin(self.bootstrap_servers, client_id="bench-admin")

    @property
    def bootstrap_servers(self) -> str:
        return self.local.known_state().bootstrap_servers

    @property
    def broker_pids(self) -> list[int]:
        return [broker.pid for broker in self.local.known_state().brokers]

    def create_topic(self, partitions: int) -> list[TopicPartition]:
        """A new topic with every replica in sync."""
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        configs = {"min.insync.replicas": str(MIN_IN_SYNC)}
        self.admin.create_topics([NewTopic(topic, partitions, REPLICAS, configs=configs)])
        self.wait_in_sync(topic)
        return [TopicPartition(topic, number) for number in range(partitions)]

    def wait_in_sync(self, topic: str) -> None:
        wait_for(f"all replicas of {topic} in sync", lambda: self._in_sync(topic))

    def _in_sync(self, topic: str) -> bool:
        try:
            partitions = self.admin.describe_topics([topic])[0].partitions
        except TidelogError:
            return False
        return bool(partitions) and all(len(p.isr) == REPLICAS and p.leader >= 0 for p in partitions)

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition."""
        return {p.partition: p.leader for p in self.admin.describe_topics([topic])[0].partitions}

    def controller(self) -> int:
        return wait_for("a controller", lambda: max(self.admin.describe_cluster().controller, 0))

    def leader_of_some(self, tps: Sequence[TopicPartition], *, controller: bool) -> tuple[int, list[TopicPartition]]:
        """A broker that leads some of a topic's partitions and is, or is not, the controller; and those that it leads.

        NotMeasured where there is none.
        """
        leaders, controls = self.leaders(tps[0].topic), self.controller()
        chosen = min((each for each in leaders.values() if (each == controls) == controller), default=None)
        if chosen is None:
            raise NotMeasured(f"broker {controls} is the controller, {sorted(set(leaders.values()))} lead: nobody fits")
        return chosen, [tp for tp in tps if leaders[tp.partition] == chosen]

    def kill(self, broker_id: int) -> None:
        """SIGKILL; returns when it is dead."""
        process = self.local.broker_process(broker_id)
        assert process is not None
        process.signal(signal.SIGKILL)
        if not process.wait(_END_MS):
            raise NotMeasured(f"broker {broker_id} does not end")

    def pid(self, broker_id: int) -> int:
        return self.local.known_state().broker(broker_id).pid

    def restart(self, broker_id: int) -> None:
        """Start a broker that has ended."""
        process = self.local.broker_process(broker_id)
        if process is not None and not process.wait(30_000):
            raise NotMeasured(f"broker {broker_id} did not end within 30 s")
        self.local.start_broker(broker_id)

    def close(self) -> None:
        self.admin.close()
        self.local.stop()


class Lab:
    """`seconds`: how long a benchmark of a rate produces. `say` shows progress, `judge` reads what was written."""

    def __init__(self, directory: Path, seconds: float, say: Callable[[str], None], *, profile: bool = False) -> None:
        self.directory = directory
        self.seconds = seconds
        self.say = say
        self.profile = profile
        self.judge = Judge(say)
        self._shared: ClusterUnderTest | None = None
        self._open = ExitStack()

    @property
    def cluster(self) -> ClusterUnderTest:
        """The one for all benchmarks of a run that leave it as they found it; started when first needed."""
        if self._shared is None:
            self._shared = self._open.enter_context(self.fresh_cluster())
        return self._shared

    @property
    def has_cluster(self) -> bool:
        """Whether a benchmark of this run has used the shared one."""
        return self._shared is not None

    @contextmanager
    def fresh_cluster(self, **settings: int) -> Iterator[ClusterUnderTest]:
        """A cluster in an empty directory, with the shipped settings but for these; stopped and removed at the end."""
        with self.fresh_directory() as directory:
            local = LocalCluster(directory / "data", home=directory / "home")
            try:
                local.start(REPLICAS, settings=settings)
                cluster = ClusterUnderTest(local)
                try:
                    yield cluster
                finally:
                    cluster.close()
            finally:
                local.stop()

    @contextmanager
    def fresh_directory(self) -> Iterator[Path]:
        directory = self.directory / uuid.uuid4().hex[:8]
        directory.mkdir()
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Stop the shared cluster; the next run gets another."""
        self._shared = None
        self._open.close()


def wait_for(what: str, look: Callable[[], T | None], timeout_s: float = 60) -> T:
    """The first truthy thing that `look` returns; NotMeasured names what did not come."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := look():
            return found
        if time.monotonic() >= deadline:
            raise NotMeasured(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(_LOOK_AGAIN_S)


def command(name: str) -> str:
    """An installed command of the environment that runs us."""
    return str(Path(sys.executable).with_name(name))
