"""The saved state of a local cluster: its ports, which never change, and its running processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidelog.errors import LocalError
from tidelog.local.processes.ports import LOOPBACK
from tidelog.local.processes.process import Condition, Process
from tidelog.model import Endpoint

STATE_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process of the cluster, which keeps its host and port across starts.

    `pid` and `birth` are those of its last start; 0 and "" before the first start and after it was stopped on purpose.
    """

    port: int
    pid: int = 0
    birth: str = ""
    host: str = LOOPBACK

    @property
    def endpoint(self) -> Endpoint:
        """The address at which clients connect to the process."""
        return Endpoint(self.host, self.port)

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports on which the process listens."""
        return (self.port,)

    @property
    def process(self) -> Process | None:
        """The process of the last start, which may have ended by itself; None if there was none, or it was stopped."""
        return Process(self.pid, self.birth) if self.pid else None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    @property
    def condition(self) -> Condition | None:
        """The condition of the process of the last start; None after it was stopped, and before the first start."""
        process = self.process
        return None if process is None else process.condition


@dataclass(frozen=True, slots=True)
class BrokerState(ProcessState):
    """A broker's process; `port` serves clients, `replication_port` other brokers.

    `http_port` serves health and metrics. A port of 0 is not chosen yet.

    `had_directory` stays true once the broker's data directory was seen. If the directory is missing later, a start
    reports the loss, and the broker begins with an empty one.
    """

    broker_id: int = 0
    replication_port: int = 0
    http_port: int = 0
    had_directory: bool = False

    @property
    def address(self) -> str:
        return str(self.endpoint)

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of the broker, without those that are not chosen yet."""
        return tuple(filter(None, (self.port, self.replication_port, self.http_port)))

    @property
    def http_address(self) -> str:
        return f"http://{Endpoint(self.host, self.http_port)}"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The processes of one cluster, whether they run or not.

    zookeeper  the address for brokers: "host:port,…", with an optional chroot
    embedded   None if the cluster uses an external ZooKeeper
    settings   settings that go into every broker's file
    config     a file of the user that every broker reads beside its own; empty: none
    histories  the directory in which each broker writes its history (ID.jsonl); empty: no histories
    """

    zookeeper: str
    embedded: ProcessState | None
    brokers: tuple[BrokerState, ...]
    settings: dict[str, str | int]
    config: str = ""
    histories: str = ""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def processes(self) -> tuple[ProcessState, ...]:
        return self.brokers if self.embedded is None else (*self.brokers, self.embedded)

    @property
    def suspended(self) -> dict[str, int]:
        """The pids of the processes that a signal has suspended, by name: {"broker 2": 4711, "ZooKeeper": 4712}."""
        named: dict[str, ProcessState] = {f"broker {broker.broker_id}": broker for broker in self.brokers}
        if self.embedded is not None:
            named["ZooKeeper"] = self.embedded
        return {name: each.pid for name, each in named.items() if each.condition is Condition.SUSPENDED}

    @property
    def running(self) -> bool:
        """Whether any process of the cluster runs."""
        return any(process.running for process in self.processes)

    def broker(self, broker_id: int) -> BrokerState:
        """Return the state of the broker with this id.

        Raise LocalError, which lists the known ids, if there is none.
        """
        for broker in self.brokers:
            if broker.broker_id == broker_id:
                return broker
        known = ", ".join(str(broker.broker_id) for broker in self.brokers)
        raise LocalError(f"no broker {broker_id} here: there are {known}")

    def with_broker(self, broker: BrokerState) -> ClusterState:
        others = (each for each in self.brokers if each.broker_id != broker.broker_id)
        return replace(self, brokers=tuple(sorted((*others, broker), key=lambda each: each.broker_id)))


def load_state(data_dir: Path) -> ClusterState | None:
    """Return the state that is saved in the data directory; None if no cluster was ever started there.

    Raises LocalError if the file cannot be read, or was not written by `tidelog up`.
    """
    path = data_dir / STATE_FILE
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        embedded = values["embedded"]
        return ClusterState(
            zookeeper=values["zookeeper"],
            embedded=None if embedded is None else ProcessState(**embedded),
            brokers=tuple(map(_broker_of, values["brokers"])),
            settings=values["settings"],
            config=values.get("config", ""),
            histories=values.get("histories", ""),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}; choose another directory with --data-dir") from None
    except (ValueError, KeyError, TypeError):
        raise LocalError(f"{path} was not written by tidelog up: move it away, or pass another --data-dir") from None


def _broker_of(values: dict[str, Any]) -> BrokerState:
    # Version 0.1.0 had two ports for clients; Kafka's is the one that is left.
    kafka_port = values.pop("kafka_port", 0)
    return BrokerState(**{**values, "port": kafka_port or values["port"]})


def save_state(data_dir: Path, state: ClusterState) -> None:
    """Write the state into the data directory's file, which is replaced as a whole, so that readers never see a part.

    After an OSError the old file is intact.
    """
    new = data_dir / f".{STATE_FILE}-{os.getpid()}"
    try:
        new.write_text(json.dumps(asdict(state), indent=2) + "\n")
        new.replace(data_dir / STATE_FILE)
    except OSError:
        new.unlink(missing_ok=True)
        raise
