"""Topics of thousands of partitions, the records in them, and the resources of the brokers that hold them.

The calls of this module ask for all partitions at once, because a question for each one takes minutes.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from cluster.state import PartitionState
from cluster.zookeeper import znodes
from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.waiting import wait_for
from tests.processes.harness.workload import check_log, read_all
from tidelog import NewTopic, Producer, TopicPartition
from tidelog.client.producer.record_future import RecordFuture
from tidelog.local.processes.process_placement import Placement

#: The longest wait for one step. Every step takes less than half a minute on an idle machine of two cores.
PATIENCE_S = 300
#: The most partitions of a topic that get records. These are more than the files that a broker with 4,096 descriptors
#: keeps open.
_MOST_WRITTEN = 2_500
_CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def under_ulimit(descriptors: int, brokers: int = 3) -> Mapping[str, Placement]:
    """Return the placement of brokers whose soft and hard limit of open files is `descriptors`."""
    prefix = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors))
    return {str(broker_id): Placement(prefix=prefix) for broker_id in range(1, brokers + 1)}


class WideTopic:
    """A topic of many partitions, created by the constructor, which returns when every replica is in sync."""

    def __init__(self, cluster: RunningCluster, name: str, partitions: int, replicas: int = 3) -> None:
        self.name = name
        self.tps = [TopicPartition(name, number) for number in range(partitions)]
        self._cluster = cluster
        self._replicas = replicas
        configs = {"min.insync.replicas": str(max(1, replicas - 1))}
        cluster.admin.create_topics([NewTopic(name, partitions, replicas, configs=configs)], PATIENCE_S * 1000)
        self.wait_in_sync()

    @property
    def written(self) -> list[TopicPartition]:
        """The partitions that get records: all, or some of the whole range. Each broker leads a part of them."""
        return self.tps[:: max(1, len(self.tps) // _MOST_WRITTEN)]

    def states(self) -> list[PartitionState]:
        """Return the state of each partition as ZooKeeper has it."""
        with self._cluster.zookeeper() as client:
            asked = [client.get_async(znodes.state_path(tp)) for tp in self.tps]
            return [znodes.decode_state(answer.get(timeout=PATIENCE_S)[0]) for answer in asked]

    def wait_in_sync(self) -> None:
        """Wait until each partition has a leader and all replicas in sync."""

        def are_in_sync() -> bool:
            return all(state.leader in state.isr and len(state.isr) == self._replicas for state in self.states())

        wait_for(f"all replicas of {len(self.tps)} partitions in sync", are_in_sync, PATIENCE_S)

    def delete(self) -> None:
        """Delete the topic, and wait until no broker has files of it on its disk or open."""
        cluster = self._cluster
        cluster.admin.delete_topics([self.name], PATIENCE_S * 1000)
        for broker_id in cluster.broker_ids:
            wait_for(
                f"broker {broker_id} to remove the files of {self.name}",
                lambda broker_id=broker_id: not self._directories(broker_id),  # type: ignore[misc]
                PATIENCE_S,
            )
            wait_for(
                f"broker {broker_id} to close the files of {self.name}",
                lambda broker_id=broker_id: not self._open_files(broker_id),  # type: ignore[misc]
            )

    def _directories(self, broker_id: int) -> list[str]:
        """Return the directories of the topic's logs, also of those that are being deleted."""
        names = os.listdir(self._cluster.local.broker_dir(broker_id))
        return [name for name in names if name.startswith(f"{self.name}-")]

    def _open_files(self, broker_id: int) -> list[str]:
        return [path for path in open_files(pid_of(self._cluster, broker_id)) if f"/{self.name}-" in path]


class Ledger:
    """Sends numbered records to `tps` with acks=all, and knows where each of them was acknowledged."""

    def __init__(self, cluster: RunningCluster, tps: Sequence[TopicPartition]) -> None:
        self._servers = cluster.bootstrap_servers
        self._tps = list(tps)
        self._numbers = itertools.count()
        self._sent: dict[TopicPartition, list[tuple[int, RecordFuture]]] = {tp: [] for tp in tps}
        self._producer = Producer(self._servers, client_id="ledger", delivery_timeout_ms=PATIENCE_S * 1000)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.close(0 if error else 10)

    def send(self) -> None:
        """Send a record to each partition, and do not wait for the acknowledgements."""
        for tp in self._tps:
            number = next(self._numbers)
            self._sent[tp].append((number, self._producer.send(tp.topic, b"%d" % number, partition=tp.partition)))

    def wait_acknowledged(self) -> None:
        """Wait until everything sent is acknowledged. An error of a record is raised."""
        for sent in self._sent.values():
            for _, future in sent:
                future.get(PATIENCE_S)

    def write(self) -> None:
        """Send a record to each partition, and wait until everything sent is acknowledged."""
        self.send()
        self.wait_acknowledged()

    def check(self) -> int:
        """Read all partitions from their beginning, and return the number of records.

        Assert that each acknowledged record is there once, at its offset and with its number, and no other record.
        """
        found = read_all(self._servers, self._tps, PATIENCE_S)
        for tp, sent in self._sent.items():
            check_log(tp, [(future.get(PATIENCE_S).offset, number) for number, future in sent], found[tp])
        return sum(map(len, found.values()))


class LivingBrokers:
    """The processes of all brokers, none of which may end by itself."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._births = {broker_id: self._birth(broker_id) for broker_id in cluster.broker_ids}

    def kill_and_restart(self, broker_id: int, meanwhile: Sequence[Ledger]) -> None:
        """Kill the broker by SIGKILL while records are on their way, send more records, and start it again.

        If other brokers run, the records are acknowledged before the start.
        """
        for ledger in meanwhile:
            ledger.send()
        self._cluster.kill(broker_id)
        for ledger in meanwhile:
            ledger.send()
            if len(self._births) > 1:
                ledger.wait_acknowledged()
        self._cluster.local.start_broker(broker_id, timeout_ms=PATIENCE_S * 1000)
        self._births[broker_id] = self._birth(broker_id)

    def check(self) -> None:
        """Assert that each process runs since its start, and that none of them was short of descriptors or failed."""
        for broker_id, birth in self._births.items():
            process, log = self._cluster.local.broker_process(broker_id), self._cluster.local.log_file(broker_id)
            assert process is not None and process.running and process.birth == birth, (
                f"broker {broker_id} ended: {log}"
            )
            for words in ("no file descriptor is left", "Traceback", "is offline"):
                assert not self._cluster.said(broker_id, words), f"broker {broker_id} logged {words!r}: {log}"

    def stop(self) -> None:
        """Assert that each broker has a clean end after SIGTERM, in turn."""
        self.check()
        for broker_id in self._births:
            self._cluster.terminate(broker_id)
            marker = self._cluster.local.broker_dir(broker_id) / _CLEAN_SHUTDOWN
            assert marker.exists(), f"broker {broker_id} has not ended by a clean shutdown"

    def _birth(self, broker_id: int) -> str:
        process = self._cluster.local.broker_process(broker_id)
        assert process is not None
        return process.birth


class Usage(NamedTuple):
    """The resources of one process: open descriptors, threads by name, and resident memory (VmRSS).

    The threads of a pool have its name, and all others that of the program or of a library.
    """

    descriptors: int
    threads: Mapping[str, int]
    resident_kib: int


def usage_of(pid: int) -> Usage:
    """Return what the process uses now."""
    process = Path(f"/proc/{pid}")
    (resident,) = (line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS:"))
    threads = Counter((task / "comm").read_text().strip() for task in (process / "task").iterdir())
    return Usage(len(os.listdir(process / "fd")), threads, int(resident.split()[1]))


def open_files(pid: int) -> list[str]:
    """Return what the open descriptors of the process lead to, such as the path of a file."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return found


def pid_of(cluster: RunningCluster, broker_id: int) -> int:
    """Return the process id of a running broker."""
    process = cluster.local.broker_process(broker_id)
    assert process is not None
    return process.pid
