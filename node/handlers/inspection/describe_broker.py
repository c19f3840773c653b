"""DescribeBroker: describe the broker's process and its machine, for `tidelog doctor`."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from node.observability.health_endpoints import HealthEndpoints
from node.observability.metrics import Metrics
from node.settings.broker_settings import BrokerSettings
from tidelog.clock import Clock
from tidelog.errors import BrokerNotAvailableError
from tidelog.protocol.operator_messages import DescribeBrokerRequest, DescribeBrokerResponse, LogDirectoryReport

_DESCRIPTORS = Path("/proc/self/fd")


class BrokerDescription:
    """The handler of DescribeBroker."""

    def __init__(self, settings: BrokerSettings, observation: HealthEndpoints, clock: Clock) -> None:
        self._settings = settings
        self._observation = observation
        self._clock = clock
        self._started_ms = clock.monotonic_ms()

    async def describe(self, request: DescribeBrokerRequest) -> DescribeBrokerResponse:
        """Return the description. The file systems are queried on a thread."""
        measures = self._observation.metrics
        if measures is None:
            raise BrokerNotAvailableError(self._observation.stage)
        failures = {str(path): str(error) for path, error in measures.disks.failures.items()}
        directories, open_files, software = await asyncio.to_thread(_look, self._settings.log_dirs, failures)
        return self._answer(measures, directories, open_files, software)

    def _answer(
        self, measures: Metrics, directories: tuple[LogDirectoryReport, ...], open_files: int, software: str
    ) -> DescribeBrokerResponse:
        return DescribeBrokerResponse(
            0,
            broker_id=measures.identity.broker_id,
            software_version=software,
            now_ms=self._clock.now_ms(),
            uptime_ms=self._clock.monotonic_ms() - self._started_ms,
            partitions=len(measures.replicas),
            open_files=open_files,
            open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            zookeeper=self._settings.zookeeper,
            zookeeper_silence_ms=measures.session.silence_ms,
            zookeeper_session_timeout_ms=self._settings.zookeeper_session_timeout_ms,
            not_ready=self._observation.why_not_ready(),
            log_directories=directories,
        )


def _look(paths: tuple[str, ...], failures: Mapping[str, str]) -> tuple[tuple[LogDirectoryReport, ...], int, str]:
    try:
        open_files = sum(1 for _ in _DESCRIPTORS.iterdir())
    except OSError:
        open_files = -1
    return tuple(_directory(path, failures.get(path, "")) for path in paths), open_files, _software_version()


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
