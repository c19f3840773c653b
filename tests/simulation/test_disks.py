"""Test the disks of simulated machines under the log manager of a broker."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from storage.files import Files
from storage.log.log import Log
from storage.log_manager import LogManager
from tests.storage.logs import NOW, batch, config, records_of
from tidelog.errors import DataDirectoryError, StorageError
from tidelog.model import TopicPartition
from verify.simulation.disks.crashable_files import CrashableFiles, PowerCut
from verify.simulation.disks.disks import NS_PER_MS, SimulatedDisk
from verify.simulation.disks.failing_files import Fault
from verify.simulation.disks.page_cache import KEPT

ROOT = Path("/data")
TP = TopicPartition("orders", 0)
SETTINGS = config(segment_bytes=2000)


def opened(files: Files, boot_id: str = "boot-1") -> tuple[LogManager, Log]:
    """Start a log manager like a broker."""
    manager = LogManager.open([ROOT], files, 1, "cluster", boot_id)
    manager.open_logs(lambda topic: SETTINGS)
    return manager, manager.get_or_create(TP, "topic-id-1", SETTINGS)


def append(log: Log, *numbers: int) -> None:
    for number in numbers:
        log.append_as_leader(batch(NOW + number, value=b"%d" % number), 0, NOW)


def numbers_in(log: Log) -> list[int]:
    return [int(record.value or b"") for record, _ in records_of(log)]


def test_killed_process_loses_nothing_and_frees_its_lock() -> None:
    disk = SimulatedDisk()
    manager, log = opened(disk.mount())
    append(log, *range(100))
    with pytest.raises(DataDirectoryError, match="in use"):
        LogManager.open([ROOT], manager.files, 1, "cluster", "boot-1")
    disk.unmount()
    after, log = opened(disk.mount())
    assert numbers_in(log) == [*range(100)]
    assert not after.possibly_short


def test_later_calls_of_a_killed_process_reach_no_disk() -> None:
    disk = SimulatedDisk()
    _, log = opened(disk.mount())
    append(log, 0)
    disk.unmount()
    with pytest.raises(PowerCut):
        append(log, 1)
    assert numbers_in(opened(disk.mount())[1]) == [0]


def test_power_loss_keeps_synced_bytes_and_a_prefix_of_the_rest() -> None:
    kept = set()
    for seed in range(40):
        disk = SimulatedDisk()
        manager, log = opened(disk.mount())
        append(log, *range(20))
        log.flush()
        append(log, *range(20, 60))
        disk.crash(Random(seed))
        manager, log = opened(disk.mount(), "boot-2")
        assert manager.possibly_short
        numbers = numbers_in(log)
        assert numbers == [*range(len(numbers))] and len(numbers) >= 20
        kept.add(len(numbers))
        append(log, len(numbers))
    assert min(kept) == 20 and len(kept) > 4


def test_clean_shutdown_survives_a_power_loss() -> None:
    disk = SimulatedDisk()
    manager, log = opened(disk.mount())
    append(log, *range(50))
    manager.close()
    disk.crash()
    manager, log = opened(disk.mount(), "boot-2")
    assert not manager.possibly_short
    assert numbers_in(log) == [*range(50)]


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.WRITE_ERROR, Fault.SYNC_ERROR, Fault.READ_ONLY])
def test_failing_disk_fails_for_every_process_until_healed(fault: Fault) -> None:
    disk = SimulatedDisk()
    _, log = opened(disk.mount())
    append(log, *range(10))
    disk.fail(fault)
    with pytest.raises(StorageError):
        append(log, 10)
        log.flush()
    assert disk.refused
    disk.unmount()
    with pytest.raises(StorageError):
        _, log = opened(disk.mount())
        append(log, 11)
        log.flush()
    disk.unmount()
    disk.heal()
    numbers = numbers_in(opened(disk.mount())[1])
    assert numbers[:10] == [*range(10)] and {10, 11}.issuperset(numbers[10:])


def test_slow_disk_takes_the_time_of_its_caller() -> None:
    spent: list[int] = []
    disk = SimulatedDisk()
    _, log = opened(disk.mount(spent.append))
    append(log, 0)
    assert spent == []
    disk.slow(write_ms=300, sync_ms=500, for_ms=60_000)
    append(log, 1)
    assert spent == [300 * NS_PER_MS]
    log.flush()
    assert 500 * NS_PER_MS in spent
    disk.heal()
    spent.clear()
    append(log, 2)
    assert spent == []


def test_slow_disk_costs_at_most_its_duration_in_total() -> None:
    spent: list[int] = []
    disk = SimulatedDisk()
    _, log = opened(disk.mount(spent.append))
    disk.slow(write_ms=300, sync_ms=300, for_ms=1_000)
    for number in range(10):  # like one piece of a thread's work
        append(log, number)
    assert sum(spent) == 1_000 * NS_PER_MS


def test_flipped_bit_stays_flipped_synced_or_not() -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        _, log = opened(disk.mount())
        append(log, *range(10))
        if seed % 2:
            log.flush()
        place = disk.flip(Random(seed))
        assert place is not None
        path, position = place
        flipped = (disk.content.read(path) or b"")[position]
        disk.crash(KEPT)
        assert (disk.content.read(path) or b"")[position] == flipped
        numbers = numbers_in(opened(disk.mount(), "boot-2")[1])
        assert numbers == [*range(len(numbers))] and len(numbers) <= 10, "what is damaged is not shown"


def test_bit_flips_in_a_closed_segment_only_and_is_repaired() -> None:
    disk = SimulatedDisk()
    _, log = opened(disk.mount())
    append(log, 0)
    assert isinstance(disk.content, CrashableFiles)
    aside = ROOT / "orders-0.0123-stray"
    disk.content.make_directory(aside)
    for offset in (0, 7):
        disk.content.replace(aside / f"{offset:020}.log", b"unused bytes")
    assert disk.flip_closed(Random(1)) is None, "none is closed yet that anybody reads"
    append(log, *range(1, 100))
    logs = sorted(path for path in disk.content.paths() if path.suffix == ".log" and path.parent != aside)
    before = {path: disk.content.read(path) for path in logs}
    for seed in range(20):
        found = disk.flip_closed(Random(seed))
        assert found is not None
        path, following, repair = found
        assert path != logs[-1] and following in logs
        assert [each for each in logs if disk.content.read(each) != before[each]] == [path]
        assert disk.flip_closed(Random(seed)) is None, "it could not be made well again where both changed the same"
        repair()
        assert disk.content.read(path) == before[path]


def test_replacement_of_a_damaged_file_is_not_changed_by_the_repair() -> None:
    disk = SimulatedDisk()
    _, log = opened(disk.mount())
    append(log, *range(1, 100))
    assert isinstance(disk.content, CrashableFiles)
    before = {path: disk.content.read(path) or b"" for path in disk.content.paths()}
    found = disk.flip_closed(Random(1))
    assert found is not None
    path, _, repair = found
    damaged = disk.content.read(path) or b""
    compacted = bytes(now if now != once else now ^ 1 for now, once in zip(damaged, before[path], strict=True))
    disk.content.replace(path, compacted)
    repair()
    assert disk.content.read(path) == compacted


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_torn_write_ends_the_writer(share: float) -> None:
    disk = SimulatedDisk()
    _, log = opened(disk.mount())
    append(log, *range(10))
    disk.tear(share, disk.unmount)
    with pytest.raises(PowerCut):
        append(log, 10)
    with pytest.raises(PowerCut):
        append(log, 11)
    assert numbers_in(opened(disk.mount())[1]) == [*range(11 if share == 1 else 10)]
