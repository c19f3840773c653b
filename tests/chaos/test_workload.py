"""Test the client processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from tidelog import NewTopic
from tidelog.errors import LocalError, TopicAlreadyExistsError
from tidelog.history.history_files import history_path, read_history
from tidelog.history.operations import Client
from tidelog.local.processes.process import Process
from verify.chaos.load import Load
from verify.chaos.workload import Workload, create_topics
from verify.checker.inputs.run_directory import RunDirectory

#: No broker listens at this address.
NOWHERE = "127.0.0.1:1"
LOAD = Load(processes=1, delivery_timeout_ms=1_000)


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not seen():  # noqa: ASYNC110  # processes do not wake us
            await asyncio.sleep(0.02)


def lives_in(history: Path) -> int:
    """Return the number of processes that have written to the history, from its headers."""
    return sum(isinstance(each, Client) for each in read_history(history)) if history.exists() else 0


async def test_killed_client_is_replaced_and_continues_its_history(tmp_path: Path) -> None:
    history = history_path(tmp_path, "clients-0-tail")
    async with Workload(tmp_path, NOWHERE, LOAD) as workload:
        await until(lambda: lives_in(history) == 1)
        (first,) = workload.processes
        first.signal(signal.SIGKILL)
        await until(lambda: workload.replaced == 1 and lives_in(history) == 2)
        (second,) = workload.processes
    assert first.pid != second.pid and not second.running
    assert not workload.failures and second.exit_status == 0
    assert RunDirectory(tmp_path).ending().compacted == {"latest"}


@dataclass
class Creator:
    """An admin that records what it is asked to create. The topic `exists` exists already."""

    exists: str = "clicks"
    created: list[tuple[str, int | None, int | None]] = field(default_factory=list)
    timeouts_ms: list[int] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Have nothing to close."""

    async def create_topics(self, topics: list[NewTopic], timeout_ms: int) -> None:
        (topic,) = topics
        if topic.name == self.exists:
            raise TopicAlreadyExistsError(topic.name)
        self.created.append((topic.name, topic.num_partitions, topic.replication_factor))
        self.timeouts_ms.append(timeout_ms)


async def test_topics_of_the_load_and_the_idle_one_are_created(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Creator()
    monkeypatch.setattr("verify.chaos.workload.Admin", lambda *_, **__: admin)
    await create_topics(NOWHERE, Load(idle_partitions=3_000), brokers=4)
    assert [name for name, *_ in admin.created] == ["orders", "scattered", "stamped", "latest", "chaos-idle"]
    assert admin.created[0] == ("orders", 3, 3) and admin.created[-1] == ("chaos-idle", 3_000, 3)
    assert admin.timeouts_ms[-1] == 120_000


async def test_failing_client_is_restarted_a_few_times_and_reported(tmp_path: Path) -> None:
    async with Workload(tmp_path, "no address", LOAD) as workload:
        await until(lambda: len(workload.failures) >= 5)
        await asyncio.sleep(0.3)  # nothing must happen
    assert len(workload.failures) == 5
    assert all("ConfigError" in failure for failure in workload.failures)


async def test_client_that_cannot_be_replaced_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, errors = Process.spawn, [OSError("no memory"), OSError("no memory")]

    def spawn_later(*arguments: Any, **options: Any) -> Process:
        if errors:
            raise errors.pop()
        return spawn(*arguments, **options)

    history = history_path(tmp_path, "clients-0-tail")
    async with Workload(tmp_path, NOWHERE, LOAD) as workload:
        await until(lambda: lives_in(history) == 1)
        monkeypatch.setattr(Process, "spawn", spawn_later)
        workload.processes[0].signal(signal.SIGKILL)
        await until(lambda: workload.replaced == 1 and lives_in(history) == 2)
    assert workload.failures == ["clients-0 cannot be replaced: a client process cannot be started: no memory"] * 2


async def test_failure_without_readable_output_is_reported(tmp_path: Path) -> None:
    async with Workload(tmp_path, "no address", LOAD) as workload:
        (tmp_path / "clients" / "clients-0.0.log").unlink()
        await until(lambda: len(workload.failures) >= 2)
    assert "its output cannot be read" in workload.failures[0]


async def test_clients_are_stopped_if_a_later_one_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn, spawned = Process.spawn, list[Process]()

    def spawn_one(*arguments: Any, **options: Any) -> Process:
        if spawned:
            raise OSError("no memory")
        spawned.append(spawn(*arguments, **options))
        return spawned[0]

    monkeypatch.setattr(Process, "spawn", spawn_one)
    with pytest.raises(LocalError, match="no memory"):
        async with Workload(tmp_path, NOWHERE, Load(processes=2, delivery_timeout_ms=1_000)):
            raise AssertionError("it did not start")
    assert not spawned[0].running
