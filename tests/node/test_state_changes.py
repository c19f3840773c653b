"""Reports of a broker to the controller about its replicas, while ZooKeeper does not answer at first."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.state import PartitionState
from cluster.store import OutcomeUnknownError
from node.state_changes import StateChanges
from node.waiting import Waiting
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.model import TopicPartition


class SilentStore:
    """Fails so many notifications, and notes the others."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.failed_directories: list[int] = []

    async def change_isr(self, tp: TopicPartition, new: PartitionState, partition_epoch: int) -> int:
        raise AssertionError("no ISR changes here")

    async def notify_isr_change(self, tps: Iterable[TopicPartition]) -> None:
        raise AssertionError("no ISR changes here")

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OutcomeUnknownError("ZooKeeper does not answer")
        self.failed_directories.append(broker_id)


async def never(*_: object) -> None:
    raise AssertionError("nothing is written")


@on_virtual_time
async def test_failed_directory_is_reported_until_zookeeper_answers() -> None:
    store, waiting, clock = SilentStore(failures=2), Waiting(lambda callback: None), VirtualClock()
    changes = StateChanges(1, store, waiting, clock, lambda replica, facts: None, never)
    changes.replicas_failed()

    def told() -> bool:
        changes.tick(clock.monotonic_ms())
        return bool(store.failed_directories)

    await until(told)
    changes.tick(clock.monotonic_ms())
    assert store.failed_directories == [1], "it is told once"
    await changes.close()
