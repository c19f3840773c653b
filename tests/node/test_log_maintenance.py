"""The periodic work of a broker on its logs: it runs, touches only what it may, and ends with the broker."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.replication.log_maintenance import MaintenanceLoop
from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DynamicSettings
from storage.descriptor_reserve import OutOfDescriptorsError
from storage.log.batch_validation import validate_batch
from storage.log.log import Log
from storage.log_maintenance import LogMaintenance
from storage.log_manager import LogManager
from tests.hand_clock import HandClock
from tests.node.client_requests import TP
from tests.node.memory_cluster import MemoryCluster
from tests.node.test_loop_budget import Turns
from tests.storage.cleaning import keyed
from tests.storage.logs import UnsyncedFiles
from tests.virtual_time import until
from tidelog.clock import SystemClock
from tidelog.model import TopicPartition
from verify.simulation.disks.failing_files import FailingFiles, Fault

SETTINGS = BrokerSettings(
    broker_id=1,
    log_dirs=("unused",),
    zookeeper="127.0.0.1:1",
    replica_high_watermark_checkpoint_interval_ms=10,
    log_retention_check_interval_ms=10,
    log_cleaner_backoff_ms=10,
    log_flush_scheduler_interval_ms=10,
    log_flush_offset_checkpoint_interval_ms=10,
    log_flush_start_offset_checkpoint_interval_ms=10,
)


class BrokerOnDisk:
    """A broker that leads one partition on a real disk."""

    def __init__(self, cluster: MemoryCluster, manager: LogManager, files: FailingFiles) -> None:
        self.node = cluster.nodes[1]
        self.cluster = cluster
        self.manager = manager
        self.files = files

    @property
    def log(self) -> Log:
        return self.manager.logs()[TP]

    def maintenance_loop(
        self, maintenance: LogMaintenance | None = None, clock: SystemClock | None = None, **settings: object
    ) -> MaintenanceLoop:
        chosen = dataclasses.replace(SETTINGS, **settings)  # type: ignore[arg-type]
        maintenance = maintenance or LogMaintenance(self.manager, self.files)
        return MaintenanceLoop(
            DynamicSettings(chosen), self.node.replicas, self.manager, maintenance, clock or SystemClock()
        )


@asynccontextmanager
async def broker_on_disk(path: Path, **configs: str) -> AsyncIterator[BrokerOnDisk]:
    files = FailingFiles(UnsyncedFiles())
    manager = LogManager.open([path], files, 1, "c", "boot")
    async with MemoryCluster(1, directory=lambda: manager) as cluster:
        cluster.configs = {name.replace("_", "."): value for name, value in configs.items()}
        await cluster.elect(1)
        yield BrokerOnDisk(cluster, manager, files)


async def test_retention_stops_at_the_high_watermark_and_removes_files_later(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path, segment_bytes="200", retention_bytes="400", file_delete_delay_ms="0") as here:
        for _ in range(20):
            await here.cluster.produce(b"x" * 50)
        maintenance = here.maintenance_loop()
        maintenance.start()
        await until(lambda: here.log.log_start_offset > 0)
        assert here.log.size_bytes <= 600
        await until(lambda: not list(tmp_path.rglob("*.deleted")))
        here.node.replica().partition.high_watermark = start = here.log.log_start_offset
        now_ms = SystemClock().now_ms()
        for _ in range(20):
            here.log.append_as_leader(keyed((None, b"x" * 50), timestamp=now_ms), 0, now_ms)
        await maintenance.delete_old_segments()
        assert here.log.log_start_offset == start
        await maintenance.stop()


def deleted(path: Path) -> list[Path]:
    return list(path.rglob("*.deleted"))


class SetBack(HandClock):
    """A clock whose wall time goes back by one hour with each reading."""

    def __init__(self) -> None:
        super().__init__()
        self._wall_ms = super().now_ms()

    def now_ms(self) -> int:
        self._wall_ms -= 3_600_000
        return self._wall_ms


async def test_files_are_removed_on_time_if_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    async with broker_on_disk(
        tmp_path, segment_bytes="200", retention_bytes="400", file_delete_delay_ms="60000"
    ) as here:
        for _ in range(20):
            await here.cluster.produce(b"x" * 50)
        clock = SetBack()
        maintenance = here.maintenance_loop(clock=clock)
        await maintenance.delete_old_segments()
        clock.at_ms = 59_999
        await maintenance.remove_deleted()
        assert deleted(tmp_path)
        clock.at_ms = 60_000
        await maintenance.remove_deleted()
        assert not deleted(tmp_path)
        await maintenance.stop()


async def test_retention_on_a_slow_disk_handles_one_log_per_loop_turn(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path, segment_bytes="200", retention_bytes="0") as here:
        tps = [TP, *(TopicPartition("t", number) for number in range(1, 4))]
        for tp in tps[1:]:
            await here.cluster.elect(1, tp=tp)
        now_ms = SystemClock().now_ms()
        for replica in here.node.replicas:
            for _ in range(5):
                replica.append_as_leader(validate_batch(keyed((None, b"x" * 50)), replica.log.config, now_ms), now_ms)
            replica.partition.high_watermark = 5
        turns = Turns()
        turns.slow(here.node.replicas.loop_budget)
        await here.maintenance_loop().delete_old_segments()
        assert [here.manager.logs()[tp].log_start_offset for tp in tps] == [5] * 4
        assert len(turns.appends) == 4 and turns.have_one_append_each


async def test_retention_skips_a_replica_that_was_dropped_meanwhile(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path) as here:
        other = TopicPartition("t", 1)
        await here.cluster.elect(1, tp=other)
        asked: list[TopicPartition] = []

        class Watched(LogMaintenance):
            def delete_old_segments(self, tp: TopicPartition, *_: int) -> int:
                asked.append(tp)
                here.node.replicas.loop_budget.charge(300)
                asyncio.get_running_loop().create_task(here.node.replicas.set_aside(other))
                return 0

        await here.maintenance_loop(Watched(here.manager, here.files)).delete_old_segments()
        assert asked == [TP]


async def test_logs_are_compacted_and_checkpoints_written(tmp_path: Path) -> None:
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "flush_ms": "0"}
    async with broker_on_disk(tmp_path, **settings) as here:
        for number in range(3):
            batch = keyed((b"a", b"%d" % number), timestamp=SystemClock().now_ms())
            here.log.append_as_leader(batch, 0, SystemClock().now_ms())
            here.log.roll(SystemClock().now_ms())
        here.node.replica().partition.high_watermark = 3
        maintenance = here.maintenance_loop()
        maintenance.start()
        names = ("cleaner", "recovery-point", "replication")
        files = [tmp_path / f"{name}-offset-checkpoint" for name in names]
        await until(lambda: all(file.exists() and "t 0 3" in file.read_text() for file in files))
        assert (tmp_path / "log-start-offset-checkpoint").exists()
        assert len(here.log.segment_base_offsets) == 2
        await maintenance.stop()


async def test_new_leader_epoch_is_written_to_its_file_soon(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path) as here:
        file = tmp_path / str(TP) / "leader-epoch-checkpoint"
        maintenance = here.maintenance_loop()
        await maintenance.write_epochs()
        assert file.read_text() == "0\n1\n0 0\n"
        await here.cluster.produce(b"a")
        await here.cluster.elect(1)
        assert here.log.latest_epoch == 1 and "1 1" not in file.read_text(), "the write of the epoch is deferred"
        await maintenance.write_epochs()
        assert file.read_text() == "0\n2\n0 0\n1 1\n"
        await maintenance.stop()


async def test_state_of_idle_producers_is_dropped(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path) as here:
        now_ms = SystemClock().now_ms()
        batch = keyed((b"a", b"1"), timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=0)
        here.log.append_as_leader(batch, 0, now_ms)
        settings = DynamicSettings(dataclasses.replace(SETTINGS, producer_id_expiration_check_interval_ms=1))
        maintenance = MaintenanceLoop(
            settings, here.node.replicas, here.manager, LogMaintenance(here.manager, here.files), SystemClock()
        )
        await maintenance.forget_idle_producers()
        assert here.log.last_offsets_of_producers, "the time to keep them is a day at first"
        settings.apply({"producer.id.expiration.ms": "1"}, {})
        maintenance.start()
        await until(lambda: not here.log.last_offsets_of_producers)
        await maintenance.stop()


async def test_disabled_cleaner_compacts_nothing(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path) as here:
        rounds: Counter[str] = Counter()

        class Watched(LogMaintenance):
            def begin_cleaning(self, now_ms: int, upper_bounds: object) -> None:
                rounds["compaction"] += 1

            def flush_due(self, now_ms: int) -> int:
                rounds["syncs, as often"] += 1
                return 0

        on = here.maintenance_loop(Watched(here.manager, here.files))
        on.start()
        await until(lambda: rounds["compaction"] > 0)
        await on.stop()
        rounds.clear()
        off = here.maintenance_loop(Watched(here.manager, here.files), log_cleaner_enable=False)
        off.start()
        await until(lambda: rounds["syncs, as often"] > 3)
        await off.stop()
        assert not rounds["compaction"]


async def test_cleaner_backs_off_after_a_failed_round(tmp_path: Path) -> None:
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
    async with broker_on_disk(tmp_path, **settings) as here:
        now_ms = SystemClock().now_ms()
        for number in range(2):
            here.log.append_as_leader(keyed((b"a", b"%d" % number), timestamp=now_ms), 0, now_ms)
            here.log.roll(now_ms)
        here.node.replica().partition.high_watermark = 2

        def refuse(call: str, path: Path) -> None:
            if ".cleaned" in path.name:
                raise OutOfDescriptorsError(f"{path}: too many open files")

        here.files.watch = refuse
        maintenance = here.maintenance_loop()
        assert not await maintenance.clean()
        here.files.watch = lambda call, path: None
        assert await maintenance.clean()
        assert not await maintenance.clean()
        await maintenance.stop()


async def test_disk_failure_in_periodic_work_is_noticed(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path) as here:
        maintenance = here.maintenance_loop()
        maintenance.start()
        here.files.fail(Fault.READ_ONLY)
        await until(lambda: len(here.node.storage_errors) == 1)
        assert here.node.replica().offline
        await maintenance.stop()


async def test_stop_ends_all_work_also_within_a_long_round(tmp_path: Path) -> None:
    async with broker_on_disk(tmp_path) as here:
        released = threading.Event()
        began, ended = threading.Event(), list[bool]()

        class Endless:
            def write_next(self) -> bool:
                began.set()
                ended.append(released.wait(20))
                return False

            def install(self, monotonic_ms: int) -> None: ...
            def end(self) -> bool:
                ended.append(True)
                return True

        class Busy(LogMaintenance):
            def begin_cleaning(self, now_ms: int, upper_bounds: object) -> Endless:  # type: ignore[override]
                return Endless()

            def stop(self) -> None:
                released.set()

        maintenance = here.maintenance_loop(Busy(here.manager, here.files))
        maintenance.start()
        await until(began.is_set)
        await maintenance.stop()
        assert ended[-2:] == [True, True]
