"""Create the topics of a load, and run its client processes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.aio import Admin
from tidelog.errors import LocalError, TopicAlreadyExistsError
from tidelog.local.broker import broker_environment
from tidelog.local.processes.process import Process
from verify.chaos.load import Load, Part
from verify.checker.inputs.run_directory import write_compacted

DIRECTORY = "clients"
_LOOK_AGAIN_S = 0.1
#: The time in which a topic must be created, and the additional time of each partition.
_CREATE_MS, _CREATE_PARTITION_MS = 60_000, 20
#: The time for clients to end, in addition to the time limit of their last operations.
_END_S = 10.0
#: After this many unexpected ends a process is not replaced, because new processes would fail as well.
_MOST_FAILURES = 5
#: The number of characters at the end of a failed process's output that are reported.
_LAST_WORDS = 2_000


def replicas_of(brokers: int) -> int:
    """Return the replication factor of the load's partitions in a cluster of so many brokers."""
    return min(3, brokers)


async def create_topics(servers: str, load: Load, brokers: int) -> None:
    """Create the load's topics with min(3, `brokers`) replicas. Existing topics stay unchanged. Other errors are
    raised.
    """
    async with Admin(servers, client_id="workload") as admin:
        for topic in load.all_topics:
            timeout_ms = _CREATE_MS + topic.partitions * _CREATE_PARTITION_MS
            with suppress(TopicAlreadyExistsError):
                await admin.create_topics([topic.new_topic(replicas_of(brokers))], timeout_ms)


@dataclass(slots=True)
class _Child:
    process: Process
    life: int
    output: Path


class Workload:
    """The client processes, from entering `async with` to its exit.

    A process that ends is replaced by a new one. An end other than by SIGKILL is a failure, and so is a replacement
    that cannot be started. Once there are five failures, no process that ends later is replaced. Entering writes the
    names of compacted topics for the checker, and raises LocalError if a process cannot be started. The histories are
    in `directory`, and so is the output of the processes (`clients/clients-NUMBER.LIFE.log`).
    """

    def __init__(self, directory: Path, servers: str, load: Load, *, seed: int = 0) -> None:
        self.load = load
        self._directory = directory.resolve()
        self._servers = servers
        self._seed = seed
        self._children: list[_Child] = []
        self._watching: asyncio.Task[None] | None = None
        #: One text for each process that ended unexpectedly or not in time, with the end of its output.
        self.failures: list[str] = []
        #: How often a process was killed and replaced.
        self.replaced = 0

    async def __aenter__(self) -> Self:
        (self._directory / DIRECTORY).mkdir(parents=True, exist_ok=True)
        write_compacted(self._directory, [topic.name for topic in self.load.topics if topic.is_compacted])
        try:
            for number in range(self.load.all_processes):
                self._children.append(self._start(number, 0))
        except BaseException:
            await self.stop()
            raise
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def processes(self) -> Sequence[Process]:
        """Return the last process of each number, which may have ended. Empty before entering and after `stop`."""
        return [child.process for child in self._children]

    @property
    def left_out(self) -> int:
        """Return the number of records that all client processes so far have not sent, because they had too little of
        this machine's time.
        """
        logs = (self._directory / DIRECTORY).glob("*.log")
        lines = [line.split() for log in logs for line in log.read_text(errors="replace").splitlines()]
        return sum(int(words[3]) for words in lines if words[1:3] == ["left", "out"])

    async def stop(self) -> None:
        """Continue paused processes, send SIGTERM to all, and wait until every sent record has its outcome and all have
        ended.

        A process that still runs 10 s after the delivery timeout is killed and counts as a failure. Another exit status
        than 0 or SIGKILL is a failure too, unless there are five failures already.
        """
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None
        children, self._children = self._children, []
        for child in children:
            child.process.signal(signal.SIGCONT)
            child.process.signal(signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + self.load.delivery_timeout_ms / 1000 + _END_S
        for number, child in enumerate(children):
            left_s = max(0.0, deadline - asyncio.get_running_loop().time())
            if not await asyncio.to_thread(child.process.wait, int(left_s * 1000)):
                child.process.signal(signal.SIGKILL)
                await asyncio.to_thread(child.process.wait, 10_000)
                self._failed(number, child, "did not end in time")
            elif child.process.exit_status not in (0, -signal.SIGKILL) and len(self.failures) < _MOST_FAILURES:
                self._failed(number, child, f"ended with status {child.process.exit_status}")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            for number, child in enumerate(self._children):
                if child.process.running or len(self.failures) >= _MOST_FAILURES:
                    continue
                try:
                    self._children[number] = self._start(number, child.life + 1)
                except (OSError, LocalError) as error:  # the next look tries again
                    self.failures.append(f"clients-{number} cannot be replaced: {error}")
                    continue
                if child.process.exit_status == -signal.SIGKILL:
                    self.replaced += 1
                else:
                    self._failed(number, child, f"ended with status {child.process.exit_status}")

    def _start(self, number: int, life: int) -> _Child:
        directory = self._directory / DIRECTORY
        part = Part(self.load, self._servers, str(self._directory), number, life, self._seed)
        path = directory / f"clients-{number}.json"
        path.write_text(part.to_json())
        output = directory / f"clients-{number}.{life}.log"
        command = [sys.executable, "-P", "-m", "verify.chaos.clients", str(path)]
        try:
            process = Process.spawn(command, output=output, directory=directory, environment=broker_environment())
        except OSError as error:
            raise LocalError(f"a client process cannot be started: {error}") from None
        return _Child(process, life, output)

    def _failed(self, number: int, child: _Child, what: str) -> None:
        try:
            words = child.output.read_text(errors="replace")[-_LAST_WORDS:]
        except OSError as error:
            words = f"its output cannot be read: {error}"
        self.failures.append(f"clients-{number} {what}: {words}")
