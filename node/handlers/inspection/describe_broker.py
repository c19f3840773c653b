"""DescribeBroker: describe the broker's process and its machine, for `tidelog doctor`."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Mapping, Sized
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol

from node.replication.replica_manager import ReplicaManager
from node.settings.broker_settings import BrokerSettings
from node.settings.machine_limits import free_memory, memory_of_machine, resident_memory
from tidelog.protocol.operator_messages import DescribeBrokerRequest, DescribeBrokerResponse, LogDirectoryReport

_DESCRIPTORS = Path("/proc/self/fd")


class SessionSilence(Protocol):
    """The part of `node.process.zookeeper_session.ZooKeeperSession` that this module needs."""

    @property
    def silence_ms(self) -> int: ...


class FailedDirectories(Protocol):
    """The part of `storage.log_manager.LogManager` that this module needs."""

    @property
    def failures(self) -> Mapping[Path, object]: ...


class BrokerDescription:
    """The handler of DescribeBroker.

    max_partitions    returns the present value of max.broker.partitions
    connections       the connections of clients
    max_connections   returns how many of them the broker accepts at present
    """

    def __init__(
        self,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        session: SessionSilence,
        disks: FailedDirectories,
        why_not_ready: Callable[[], str | None],
        max_partitions: Callable[[], int],
        connections: Sized,
        max_connections: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._session = session
        self._disks = disks
        self._why_not_ready = why_not_ready
        self._max_partitions = max_partitions
        self._connections = connections
        self._max_connections = max_connections
        self._started_ms = replicas.clock.monotonic_ms()

    async def describe(self, request: DescribeBrokerRequest) -> DescribeBrokerResponse:
        """Return the description of this broker. The file systems and the memory are queried on a thread.

        A log directory that has failed has its error. The number of open files is −1 if it is unknown.
        """
        failures = {str(path): str(error) for path, error in self._disks.failures.items()}
        machine = await asyncio.to_thread(_look, self._settings.log_dirs, failures)
        clock = self._replicas.clock
        return DescribeBrokerResponse(
            0,
            broker_id=self._replicas.broker_id,
            software_version=machine.software_version,
            now_ms=clock.now_ms(),
            uptime_ms=clock.monotonic_ms() - self._started_ms,
            partitions=len(self._replicas),
            open_files=machine.open_files,
            open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            zookeeper=self._settings.zookeeper,
            zookeeper_silence_ms=self._session.silence_ms,
            zookeeper_session_timeout_ms=self._settings.zookeeper_session_timeout_ms,
            not_ready=self._why_not_ready(),
            log_directories=machine.log_directories,
            max_partitions=self._max_partitions(),
            memory_bytes=machine.memory_bytes,
            total_memory_bytes=machine.total_memory_bytes,
            free_memory_bytes=machine.free_memory_bytes,
            connections=len(self._connections),
            max_connections=self._max_connections(),
        )


class _Machine(NamedTuple):
    """Facts about the process and its machine, with the names that they have in `DescribeBrokerResponse`."""

    log_directories: tuple[LogDirectoryReport, ...]
    open_files: int
    software_version: str
    memory_bytes: int
    total_memory_bytes: int
    free_memory_bytes: int


def _look(paths: tuple[str, ...], failures: Mapping[str, str]) -> _Machine:
    try:
        open_files = sum(1 for _ in _DESCRIPTORS.iterdir())
    except OSError:
        open_files = -1
    directories = tuple(_directory(path, failures.get(path, "")) for path in paths)
    memory = resident_memory(), memory_of_machine(), free_memory()
    return _Machine(directories, open_files, _software_version(), *memory)


def _directory(path: str, error: str) -> LogDirectoryReport:
    try:
        found = os.statvfs(path)
    except OSError as os_error:
        return LogDirectoryReport(path, error or str(os_error.strerror))
    block = found.f_frsize
    return LogDirectoryReport(
        path, error, found.f_blocks * block, found.f_bavail * block, found.f_files, found.f_favail
    )


@cache
def _software_version() -> str:
    return version("tidelog")
