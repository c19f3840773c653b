"""Control containers of this machine through the command line of docker or podman."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.errors import LocalError
from tidelog.local.processes.process import Process, birth_of

ENGINES = ("docker", "podman")
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as it was when the engine was asked.

    pid         the process id of the container's first process on this machine; 0: the container was not running
    names       the container's own name, host name and service, and its aliases in its networks
    address     the container's address in one of these networks, reachable from this machine; empty: none
    published   the ports of this machine that are forwarded to the container
    """

    id: str
    pid: int
    names: frozenset[str]
    address: str
    published: frozenset[int]

    @property
    def process(self) -> Process | None:
        """Return the container's first process, so that faults can send signals. None: no process of this pid runs here
        now.
        """
        birth = birth_of(self.pid) if self.pid else None
        return None if birth is None else Process(self.pid, birth)


class Engine:
    """One of `ENGINES`. Each call blocks, usually for about a second, and raises LocalError if the engine fails or does
    not answer within 30 s.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def containers(self) -> list[Container]:
        """Return the current state of all running containers."""
        found = self._ask("ps", "--quiet", "--no-trunc").split()
        return [self.container(each) for each in found]

    def container(self, id: str) -> Container:
        """Return the current state of a container."""
        return of_inspection(json.loads(self._ask("inspect", "--type", "container", id))[0])

    def start(self, id: str) -> None:
        """Start a container unless it runs. The call does not wait for the container's program."""
        self._ask("start", id)

    def _ask(self, *command: str) -> str:
        try:
            answer = subprocess.run([self.name, *command], capture_output=True, text=True, timeout=_ANSWER_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalError(f"{self.name} does not answer: {error}") from None
        if answer.returncode:
            words = answer.stderr.strip().splitlines() or [f"status {answer.returncode}"]
            raise LocalError(f"{self.name} {command[0]}: {words[-1]}")
        return answer.stdout


def find_engine(ports: Collection[int]) -> tuple[Engine, dict[int, Container]]:
    """Return the engine whose running containers publish all these ports, and its container for each port.

    Raise LocalError with the reason if there is none.
    """
    troubles = []
    for name in filter(shutil.which, ENGINES):
        engine = Engine(name)
        try:
            running = engine.containers()
        except LocalError as error:
            troubles.append(str(error))
            continue
        found = {port: each for each in running for port in each.published & set(ports)}
        if missing := sorted(set(ports) - found.keys()):
            troubles.append(f"{name} has no container that publishes port {missing[0]}")
        else:
            return engine, found
    raise LocalError("; ".join(troubles) or "neither docker nor podman is installed here")


def of_inspection(fields: Mapping[str, Any]) -> Container:
    """Return the container that the output of `inspect` describes. Docker and podman agree in all fields that are
    needed.
    """
    settings = fields["NetworkSettings"]
    networks = (settings.get("Networks") or {}).values()
    labels = fields["Config"].get("Labels") or {}
    names = {fields["Name"].lstrip("/"), fields["Config"].get("Hostname"), labels.get("com.docker.compose.service")}
    names.update(alias for network in networks for alias in network.get("Aliases") or ())
    bound = [binding for each in (settings.get("Ports") or {}).values() for binding in each or ()]
    return Container(
        fields["Id"],
        fields["State"]["Pid"],
        frozenset(filter(None, names)),
        next((network["IPAddress"] for network in networks if network.get("IPAddress")), ""),
        frozenset(int(binding["HostPort"]) for binding in bound),
    )
