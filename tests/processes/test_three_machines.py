"""OPERATIONS.md done to the letter: its files, its commands, its order, on the addresses of this machine.

What a machine is there, is one of 127.0.0.1, 127.0.0.2, … here, with a directory for its disks.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell
from tests.processes.harness.waiting import wait_for
from tests.reserved_ports import reserved_port
from tests.test_operations import section
from tests.test_operators_steps import blocks
from tests.typed_commands import typed_in
from tidelog.local.zookeeper import EmbeddedZooKeeper
from tidelog.model import NO_LEADER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MACHINES, LOST, GROWING = section("Three machines"), section("When a machine is lost"), section("Growing")
LINES = 1000


class Machines:
    """Brokers whose files are those of the document, with this machine's addresses in the place of the others'."""

    def __init__(self, shell: Shell, zookeeper: str) -> None:
        self._shell = shell
        self._zookeeper = zookeeper
        self._ports = {port: str(reserved_port()) for port in ("9092", "9601", "9680")}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lines = 0

    def settle(self, machine: int, broker_id: int) -> None:
        """The machine's files, as the document has them."""
        directory = self._shell.directory / f"machine-{machine}"
        directory.mkdir()
        for name, text in zip(("cluster.toml", "broker.toml"), blocks(MACHINES, "toml"), strict=True):
            (directory / name).write_text(self._here(text, machine, broker_id))
        for disk in self.disks(machine):
            disk.mkdir(parents=True)

    def disks(self, machine: int) -> list[Path]:
        """Its log directories."""
        settings = tomllib.loads((self._shell.directory / f"machine-{machine}" / "cluster.toml").read_text())
        return [Path(disk) for disk in settings["log_dirs"]]

    def _here(self, text: str, machine: int, broker_id: int = 0) -> str:
        text = text.replace("zk-1:2181,zk-2:2181,zk-3:2181", self._zookeeper)
        text = text.replace("broker_id = 1", f"broker_id = {broker_id}")
        text = text.replace('http_listener = "127.0.0.1', f'http_listener = "127.0.0.{machine}')
        text = re.sub(r"10\.0\.0\.1|host-1", f"127.0.0.{machine}", text) if broker_id else text
        text = re.sub(r"host-(\d)", r"127.0.0.\1", text)
        text = re.sub(r"/disk(?=\d/)", f"{self._shell.directory}/machine-{machine}/disk", text)
        return re.sub(r"(?<=:)(9092|96\d\d)\b", lambda found: self._ports[found[0]], text)

    def start(self, machine: int) -> None:
        """Run the unit's command until the machine reports that it is ready."""
        [line] = re.findall(r"^ExecStart=/opt/tidelog/bin/tidelog (.*)$", MACHINES, re.MULTILINE)
        words = shlex.split(line.replace("/etc/tidelog", f"{self._shell.directory}/machine-{machine}"))
        with (self._shell.directory / f"machine-{machine}" / "journal").open("ab") as journal:
            self._processes[machine] = subprocess.Popen(
                [TIDELOG, *words],
                env=self._shell.environment(),
                stdin=subprocess.DEVNULL,
                stdout=journal,
                stderr=journal,
            )
        wait_for(f"machine {machine} to be ready", lambda: self._ready(machine), 60)

    def _ready(self, machine: int) -> bool:
        assert self._processes[machine].poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.{machine}:{self._ports['9680']}/readyz", timeout=5) as outcome:
                return bool(outcome.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self, machine: int) -> None:
        """As systemd does."""
        process = self._processes.pop(machine)
        process.terminate()
        assert process.wait(60) == 0

    def lose(self, machine: int) -> None:
        process = self._processes.pop(machine)
        process.kill()
        process.wait()

    def lose_all(self) -> None:
        for machine in list(self._processes):
            self.lose(machine)

    def type(self, command: str) -> str:
        """Return the output of a command of the document, which must succeed."""
        return self._shell.succeed(*shlex.split(self._here(command, 1))[1:]).decode()

    def produce(self) -> None:
        """Some more lines, acknowledged."""
        numbers = range(self._lines, self._lines + LINES)
        given = "".join(f"{number}\n" for number in numbers).encode()
        self._shell.succeed("produce", "lines", "--bootstrap-servers", self._bootstrap, given=given)
        self._lines += LINES

    def consume(self) -> list[int]:
        """All lines that were produced, in the order of their numbers."""
        outcome = self._shell.succeed("consume", "lines", "--bootstrap-servers", self._bootstrap)
        return sorted(map(int, outcome.split()))

    def journal(self, machine: int) -> str:
        """Return the log of the machine's broker."""
        return (self._shell.directory / f"machine-{machine}" / "journal").read_text()

    def partition(self, number: int, asked: int) -> dict[str, object]:
        """Return the machine's description of a partition."""
        where = f"127.0.0.{asked}:{self._ports['9092']}"
        outcome = json.loads(self._shell.succeed("topic", "describe", "lines", "--json", "--bootstrap-servers", where))
        return dict(outcome["partitions"][number])

    @property
    def produced(self) -> list[int]:
        return list(range(self._lines))

    @property
    def _bootstrap(self) -> str:
        return ",".join(f"127.0.0.{machine}:{self._ports['9092']}" for machine in self._processes)

    def wait_whole(self) -> None:
        """Until doctor has nothing to say."""
        command = next(command for command in typed_in(MACHINES) if command.startswith("tidelog doctor"))
        words = shlex.split(self._here(command, 1))[1:]
        wait_for("a cluster that is whole", lambda: b"under-replicated" not in self._shell.run(*words).output, 60)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as ends:
        zookeeper = ends.enter_context(EmbeddedZooKeeper(tmp_path / "zookeeper"))
        machines = Machines(Shell(tmp_path, tmp_path / "home"), zookeeper.hosts)
        ends.callback(machines.lose_all)
        for machine in (1, 2, 3):
            machines.settle(machine, machine)
            machines.start(machine)
        for command in typed_in(MACHINES):
            machines.type(command)
        machines.produce()
        yield machines


def test_a_rolling_upgrade_loses_nothing(machines: Machines) -> None:
    for machine in (1, 2, 3):
        machines.stop(machine)
        machines.produce()
        machines.start(machine)
        machines.wait_whole()
    assert machines.consume() == machines.produced


def test_cluster_grows_replaces_a_machine_and_removes_one(machines: Machines) -> None:
    machines.settle(4, broker_id=4)
    machines.start(4)
    for command in typed_in(GROWING):
        machines.type(command)
    drain, status = typed_in(LOST)[:2]
    moved = "no partition is being reassigned"
    wait_for("what grows to be copied", lambda: moved in machines.type(status), 60)

    machines.lose(3)
    machines.produce()
    machines.settle(5, broker_id=3)
    machines.start(5)
    machines.wait_whole()
    assert "logs are missing" in machines.journal(5)

    machines.lose(5)
    machines.type(drain)
    wait_for("what was lost to be copied", lambda: moved in machines.type(status), 60)
    machines.wait_whole()
    assert machines.consume() == machines.produced


def test_unclean_election_elects_a_live_replica(machines: Machines) -> None:
    machines.lose(2)
    machines.lose(3)
    wait_for("the ISR to shrink", lambda: machines.partition(1, asked=1)["isr"] == [1], 60)
    machines.lose(1)
    machines.start(2)
    wait_for("the partition to have no leader", lambda: machines.partition(1, asked=2)["leader"] == NO_LEADER, 60)
    [elect] = [command for command in typed_in(LOST) if "--unclean" in command]
    machines.type(elect.replace("host-1", "host-2"))
    wait_for("who lives to lead", lambda: machines.partition(1, asked=2)["leader"] == 2, 60)
