"""Containers of this machine, through the command line of the engine that runs them: docker, or podman."""

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
    """One that runs, or ran.

    pid         on this machine, of its first process; 0: it does not run
    names       by which others in its networks find it
    address     in one of these networks, reached from here; empty: none
    published   the ports of this machine that lead to it
    """

    id: str
    pid: int
    names: frozenset[str]
    address: str
    published: frozenset[int]

    @property
    def process(self) -> Process | None:
        """For signals."""
        birth = birth_of(self.pid) if self.pid else None
        return None if birth is None else Process(self.pid, birth)


class Engine:
    """One of `ENGINES`. Calls block for a second as a rule; LocalError where it does not answer, or refuses."""

    def __init__(self, name: str) -> None:
        self.name = name

    def containers(self) -> list[Container]:
        """All that run."""
        found = self._ask("ps", "--quiet", "--no-trunc").split()
        return [self.container(each) for each in found]

    def container(self, id: str) -> Container:
        """As it is now."""
        return of_inspection(json.loads(self._ask("inspect", "--type", "container", id))[0])

    def start(self, id: str) -> None:
        """Nothing where it runs."""
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
    """The engine that runs a container behind each of these ports of this machine, and by port which one that is.
    LocalError says why there is none.
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
            troubles.append(f"{name} has no container behind port {missing[0]}")
        else:
            return engine, found
    raise LocalError("; ".join(troubles) or "there is neither docker nor podman here")


def of_inspection(told: Mapping[str, Any]) -> Container:
    """What `inspect` prints of one; docker and podman agree in all that is needed."""
    settings = told["NetworkSettings"]
    networks = (settings.get("Networks") or {}).values()
    labels = told["Config"].get("Labels") or {}
    names = {told["Name"].lstrip("/"), told["Config"].get("Hostname"), labels.get("com.docker.compose.service")}
    names.update(alias for network in networks for alias in network.get("Aliases") or ())
    bound = [binding for each in (settings.get("Ports") or {}).values() for binding in each or ()]
    return Container(
        told["Id"],
        told["State"]["Pid"],
        frozenset(filter(None, names)),
        next((network["IPAddress"] for network in networks if network.get("IPAddress")), ""),
        frozenset(int(binding["HostPort"]) for binding in bound),
    )
