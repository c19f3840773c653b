"""Test separate disks: a power loss drops unsynced bytes, and a full disk takes no more bytes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT
from verify.chaos.faults.disks import Disks, fill
from verify.chaos.targets.undo import UndoFile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Disks().missing() is not None, reason=f"{Disks().missing()}"),
]


@pytest.fixture
async def disks(tmp_path: Path) -> AsyncIterator[tuple[Disks, Path]]:
    """Yield one disk and its data directory."""
    made, undo = Disks(), UndoFile(tmp_path)
    data = (await made.set_up(undo, tmp_path, {"1": DEFAULT_PLACEMENT}))["1"].data_dir
    assert data is not None
    data.mkdir()
    yield made, data
    await made.tear_down()
    assert not (tmp_path / "disks" / "1").exists()
    assert undo.perform() == [], "what was taken down already does no harm"


async def test_power_loss_keeps_synced_bytes_only(disks: tuple[Disks, Path]) -> None:
    made, data = disks
    with (data / "log").open("wb") as log:
        log.write(b"synced")
        log.flush()
        os.fsync(log.fileno())
        os.sync()
        log.write(b"not synced" * 10_000)
    assert await made.lose_power("1")
    assert (data / "log").read_bytes() == b"synced"


async def test_full_disk_takes_no_byte_until_there_is_space(disks: tuple[Disks, Path]) -> None:
    _, data = disks
    filler = fill(data)
    with pytest.raises(OSError, match="No space"):
        (data / "more").write_bytes(bytes(1 << 20))
    filler.unlink()
    (data / "more").write_bytes(bytes(1 << 20))


async def test_undo_log_unmounts_the_disks_of_a_killed_run(tmp_path: Path) -> None:
    made = Disks()
    await made.set_up(UndoFile(tmp_path), tmp_path, {"1": DEFAULT_PLACEMENT})
    assert made.mount_point("1").is_mount()
    assert UndoFile(tmp_path).perform() == []
    assert not made.mount_point("1").is_mount()
