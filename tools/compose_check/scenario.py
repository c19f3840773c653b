"""Checks the promises of docker-compose.yml one after the other on one cluster."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from tidelog import Admin, TopicPartition
from tidelog.client.admin.admin_results import PartitionDescription
from tidelog.local.processes.ports import port_is_free
from tidelog.model import Endpoint
from tidelog.protocol.messages import NewTopic
from tools.compose_check import kafka_clients
from tools.compose_check.engine import SERVICES, Containers, Failed, NotRun, wait_for
from tools.compose_check.load import Load, Promise, read_back
from tools.compose_check.reading import read, tools

#: Where clients on the host and clients in the compose network reach each broker.
HOST = {1: Endpoint("127.0.0.1", 9092), 2: Endpoint("127.0.0.1", 9093), 3: Endpoint("127.0.0.1", 9094)}
NETWORK = {1: Endpoint("broker-1", 9092), 2: Endpoint("broker-2", 9092), 3: Endpoint("broker-3", 9092)}

_TOPIC = "checked"
_KAFKA_TOPIC = "kafka"
_PARTITIONS = 6
_RECORDS = 1000
#: The first half is produced on the host, the second half in the network. The values are in ascending order.
_KAFKA_VALUES = [f"{number:04}" for number in range(2 * _RECORDS)]
_HEALTHY_S = 120
_IN_SYNC_S = 60
_GAP_S = 60
_CHAOS_S = 300
#: The time for which the load continues after each fault.
_AFTERWARDS_S = 2.0

Report = Callable[[str], None]


def require_free_ports(published: Mapping[int, Endpoint]) -> None:
    """Raise NotRun, which names the port and the next step, if a process on this host listens at one of these ports.

    published   the published address of each broker
    """
    for broker_id, endpoint in published.items():
        if not port_is_free(endpoint.port):
            raise NotRun(
                f"port {endpoint.port} of broker-{broker_id} is taken: stop the process that listens there"
                f" (ss -ltnp 'sport = :{endpoint.port}' shows it), or change the port in docker-compose.yml,"
                f" compose/broker-{broker_id}.toml and tools/compose_check/scenario.py"
            )


class Scenario:
    """All checks. `report` is called with a line for each promise that held."""

    def __init__(self, containers: Containers, report: Report) -> None:
        self._containers = containers
        self._report = report
        self._hosts = ",".join(map(str, HOST.values()))
        self._tps = [TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)]
        self._promises: dict[TopicPartition, list[Promise]] = {tp: [] for tp in self._tps}

    def run(self) -> None:
        """Check the configuration, start the cluster, inject faults, start the cluster again, and check the records.

        Raises Failed at the first promise that does not hold, and NotRun if a port is taken. The cluster runs
        afterwards. Volumes of an earlier check are removed first.
        """
        self._configs()
        self._containers.down("--volumes")
        require_free_ports(HOST)
        self._containers.build()
        self._report("build: the image is built")
        with self._containers.health_checks():
            self._come_up("up")
            self._look_at_containers()
            self._addresses()
            self._records_across()
            self._kafka_clients()
            self._faults()
            self._chaos()
            self._records_stay()

    def _configs(self) -> None:
        for tool in tools():
            config, complaint = read(tool)
            if complaint:
                raise Failed(f"{' '.join(tool)} config: {complaint}")
            self._report(f"config: {' '.join(tool)} has no complaint, {len(config.splitlines())} lines")

    def _come_up(self, what: str) -> None:
        started = time.monotonic()
        self._containers.up()
        wait_for("all six to be healthy", self._containers.healthy, _HEALTHY_S)
        self._report(f"{what}: {len(SERVICES)} services healthy after {time.monotonic() - started:.1f} s")

    def _look_at_containers(self) -> None:
        for service in SERVICES:
            if not self._containers.memory_limit_bytes(service):
                raise Failed(f"{service} has no memory limit")
            if (policy := self._containers.restart_policy(service)) != "unless-stopped":
                raise Failed(f"{service} has the restart policy {policy!r}")
        for broker_id in HOST:
            if self._containers.user(f"broker-{broker_id}") == "0":
                raise Failed(f"broker-{broker_id} runs as root")
            log = self._containers.log(f"broker-{broker_id}")
            if log.count("there is no authentication yet") != 1:
                raise Failed(f"broker-{broker_id} does not warn once that there is no authentication")
        self._report("containers: memory limits, restart policies, no broker is root, one warning about authentication")

    def _addresses(self) -> None:
        with Admin(self._hosts) as admin:
            wait_for("three brokers", lambda: len(admin.describe_cluster().brokers) == 3, _IN_SYNC_S)
            seen = dict(admin.describe_cluster().brokers)
            if seen != HOST:
                raise Failed(f"the host gets the addresses {seen}")
            admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)])
            replicas = {len(partition.replicas) for partition in self._partitions(admin)}
        if replicas != {3}:
            raise Failed(f"the topic has {replicas} replicas of each partition")
        for endpoint in NETWORK.values():
            self._containers.run("topic", "describe", _TOPIC, "--json", "--bootstrap-servers", str(endpoint))
        self._report(f"addresses: the host gets {_listed(HOST)}, and each of {_listed(NETWORK)} answers in the network")

    def _records_across(self) -> None:
        bootstrap = ("--bootstrap-servers", ",".join(map(str, NETWORK.values())))
        lines = "".join(f"{number}\n" for number in range(_RECORDS))
        self._containers.run("topic", "create", "across", *bootstrap)
        self._containers.run("produce", "across", *bootstrap, given=lines)
        read = self._containers.run("consume", "across", *bootstrap)
        if sorted(read.split()) != sorted(lines.split()):
            raise Failed(f"{len(read.split())} of {_RECORDS} records came back in the network")
        described = json.loads(self._containers.run("topic", "describe", "across", "--json", *bootstrap))
        found = sum(partition["high_watermark"] for partition in described["partitions"])
        self._report(f"across: {found} records produced in one container, consumed in another")

    def _kafka_clients(self) -> None:
        """Have one Kafka client on the host and one in the network read each other's records."""
        for endpoint in HOST.values():
            if (seen := kafka_clients.brokers_seen(endpoint)) != HOST:
                raise Failed(f"a Kafka client on the host gets the addresses {seen} from {endpoint}")
        kafka_clients.create_topic(HOST[1], _KAFKA_TOPIC, _PARTITIONS)
        kafka_clients.produce(HOST[1], _KAFKA_TOPIC, _KAFKA_VALUES[:_RECORDS])
        seen, values = kafka_clients.consume_and_produce_in_network(
            self._containers, NETWORK[2], _KAFKA_TOPIC, _RECORDS, _KAFKA_VALUES[_RECORDS:]
        )
        if seen != NETWORK:
            raise Failed(f"a Kafka client in the network gets the addresses {seen}")
        if sorted(values) != _KAFKA_VALUES[:_RECORDS]:
            raise Failed(f"{len(values)} of {_RECORDS} records of Kafka clients were read in the network")
        self._read_by_kafka_client("host")
        self._report(
            f"Kafka clients: the host gets {_listed(HOST)}, the network {_listed(NETWORK)},"
            f" and each reads {_RECORDS} records of the other"
        )

    def _read_by_kafka_client(self, group: str) -> None:
        """Raise Failed unless a Kafka client on the host reads every record of Kafka clients, once."""
        values = kafka_clients.consume(HOST[3], _KAFKA_TOPIC, group, len(_KAFKA_VALUES))
        if sorted(values) != _KAFKA_VALUES:
            raise Failed(f"{len(values)} of {len(_KAFKA_VALUES)} records of Kafka clients were read on the host")

    def _faults(self) -> None:
        containers = self._containers
        self._inject("SIGKILL of a leader's process, which the restart policy brings back", containers.kill_process)
        self._inject("SIGKILL of a leader that is the controller", containers.kill_process, of_controller=True)
        self._inject("a leader's container killed", containers.kill, containers.start)
        self._inject("a leader's container stopped", containers.stop, containers.start)
        self._inject("a leader's container paused, until its session ends", containers.pause, containers.unpause)

    def _inject(
        self,
        what: str,
        inject: Callable[[str], None],
        undo: Callable[[str], None] = lambda service: None,
        *,
        of_controller: bool = False,
    ) -> None:
        """Inject one fault into a leader under load, and report the longest time without an acknowledgement.

        inject, undo    called with the service's name; `undo` when all its partitions acknowledge again
        of_controller   whether the leader must be the controller; else it must not be

        If no leader fits, the fault is reported as skipped. Raises Failed if the cluster does not recover in time, or
        if an acknowledged record is missing.
        """
        with Admin(self._hosts) as admin:
            controller = admin.describe_cluster().controller
            candidates = {p.leader for p in self._partitions(admin) if (p.leader == controller) == of_controller}
            if not candidates:
                self._report(f"{what}: skipped, because no leader fits: broker {controller} is the controller")
                return
            victim = min(candidates)
            led = [TopicPartition(_TOPIC, p.partition) for p in self._partitions(admin) if p.leader == victim]
            with Load(self._hosts, self._tps) as load:
                began = time.monotonic()
                inject(f"broker-{victim}")
                hit = time.monotonic()
                wait_for("an acknowledgement on every partition", lambda: load.resumed(led, hit), _GAP_S)
                silence = load.silence(led, began)
                undo(f"broker-{victim}")
                back = time.monotonic()
                wait_for("every replica to be in sync", lambda: self._in_sync(admin), _IN_SYNC_S)
                in_sync_s = time.monotonic() - back
                time.sleep(_AFTERWARDS_S)
            for tp, promises in load.promises.items():
                self._promises[tp] += promises
            found = read_back(self._hosts, self._promises)
            self._report(
                f"{what}: broker {victim}, leader of {len(led)} partitions; {silence:.2f} s without acknowledgement,"
                f" in sync {in_sync_s:.1f} s after; all {found} acknowledged records are there"
            )

    def _chaos(self) -> None:
        """Run chaos for ten seconds, and raise Failed for a violation, a fault without effect, or topics left behind.

        Only what clients recorded is judged, because these brokers record no histories.
        """
        command = ("chaos", "--bootstrap-servers", self._hosts, "--yes", "--scenario", "leader-kill", "--seconds", "10")
        ran = subprocess.run(["tidelog", *command, "--json"], capture_output=True, text=True, timeout=_CHAOS_S)
        result = json.loads(ran.stdout) if ran.stdout else {}
        if result.get("verdict") is None:
            raise Failed(f"tidelog chaos ended with {ran.returncode}: {ran.stderr.strip()[-500:]}")
        rows, judged = result["rows"], result["verdict"]["invariants"]
        if any(row["void"] or not row["bit"] for row in rows) or any(each["violations"] for each in judged):
            raise Failed(f"tidelog chaos: {ran.stdout}")
        with Admin(self._hosts) as admin:
            if left := [topic for topic in admin.list_topics() if topic.startswith("chaos-")]:
                raise Failed(f"tidelog chaos left the topics {left}")
        seen = sum(bool(each["observations"]) for each in judged)
        self._report(f"chaos: {_bites(rows)}, no violation of {seen} invariants, and its topics are deleted")

    def _records_stay(self) -> None:
        started = time.monotonic()
        self._containers.stop_all()
        took = time.monotonic() - started
        for broker_id in HOST:
            if status := self._containers.exit_status(f"broker-{broker_id}"):
                raise Failed(f"broker-{broker_id} did not end after SIGTERM: exit status {status} after {took:.0f} s")
        self._containers.down()
        self._report(f"down: the brokers ended after SIGTERM, all within {took:.1f} s; the volumes stay")
        self._come_up("up again")
        found = read_back(self._hosts, self._promises)
        self._read_by_kafka_client("host-again")
        self._report(f"data: all {found} acknowledged records are there, and {len(_KAFKA_VALUES)} of Kafka clients")

    def _partitions(self, admin: Admin) -> tuple[PartitionDescription, ...]:
        return admin.describe_topics([_TOPIC])[0].partitions

    def _in_sync(self, admin: Admin) -> bool:
        return all(len(partition.isr) == 3 for partition in self._partitions(admin))


def _bites(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['row']} ({row['name']}) bit {row['bit']} times" for row in rows)


def _listed(endpoints: dict[int, Endpoint]) -> str:
    return ", ".join(map(str, endpoints.values()))
