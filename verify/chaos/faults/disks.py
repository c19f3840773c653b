"""Provide disks for the brokers: each data directory is on an ext4 file system of its own, in an image mounted by a
loop device.

The file system commits its journal every ten minutes (`commit=600`). Bytes that were never synced are only in the page
cache, so a copy of the image lacks them. A machine finds this copy after a power loss.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tidelog.errors import LocalError
from verify.chaos.fault import Need, Placement, UndoLog
from verify.chaos.faults.support.tools import lacking, quietly, run

_TOOLS = ("mount", "umount", "mkfs.ext4", "losetup", "cp")
_OPTIONS = "loop,commit=600"
_SIZE_BYTES = 1 << 30
_PROBE_BYTES = 8 << 20
FILLER = "filler"
_WITNESS = "not-synced"


class Disks:
    """The prerequisite for `Need.DISKS`: one disk for each broker, and one for ZooKeeper."""

    need = Need.DISKS

    def __init__(self) -> None:
        self._directory = Path()
        self._names: list[str] = []

    def missing(self) -> str | None:
        """Return why this machine cannot provide such disks, or None if it can. The call mounts a small image to find
        out, and blocks.
        """
        if (reason := lacking(_TOOLS)) is not None:
            return reason
        with tempfile.TemporaryDirectory(prefix="tidelog-") as directory:
            image, at = Path(directory, "probe.img"), Path(directory, "probe")
            try:
                _make(image, _PROBE_BYTES)
                at.mkdir()
                run("mount", "-o", _OPTIONS, str(image), str(at))
            except LocalError as error:
                return f"cannot mount images here ({error})"
            run("umount", str(at))
        return None

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        """Create and mount the disks of 1 GiB below `directory`, and return the placements, each with its data
        directory on its own disk. Raise LocalError if a command fails.
        """
        self._directory = directory / "disks"
        return await asyncio.to_thread(self._set_up, undo, places)

    async def tear_down(self) -> None:
        """Unmount the disks and remove the images."""
        names, self._names = self._names, []
        for name in names:
            await asyncio.to_thread(self._remove, name)

    def mount_point(self, name: str) -> Path:
        """Return the mount point for "zookeeper" or a broker such as "1"."""
        return self._directory / name

    async def lose_power(self, name: str) -> bool:
        """Drop everything that was not synced from the disk of "zookeeper" or a broker. No process may have a file open
        on it.

        Return whether a file that was never synced is gone, which proves the loss.
        """
        witness = self.mount_point(name) / _WITNESS
        witness.touch()
        await asyncio.to_thread(self._lose_power, name)
        kept = witness.exists()
        witness.unlink(missing_ok=True)
        return not kept

    # --- building ----------------------------------------------------------------------------------------------

    def _image(self, name: str) -> Path:
        return self._directory / f"{name}.img"

    def _set_up(self, undo: UndoLog, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        self._directory.mkdir(parents=True, exist_ok=True)
        changed = {}
        for name, place in places.items():
            at = self.mount_point(name)
            undo.to_remove(self._image(name))
            undo.to_run(*quietly("umount", "-l", str(at)))
            self._names.append(name)
            _make(self._image(name), _SIZE_BYTES)
            at.mkdir()
            run("mount", "-o", _OPTIONS, str(self._image(name)), str(at))
            changed[name] = replace(place, data_dir=at / "data")
        return changed

    def _remove(self, name: str) -> None:
        run(*quietly("umount", "-l", str(self.mount_point(name))))
        self._image(name).unlink(missing_ok=True)
        with suppress(OSError):
            self.mount_point(name).rmdir()

    def _lose_power(self, name: str) -> None:
        image, at = self._image(name), str(self.mount_point(name))
        survivor = image.with_suffix(".survivor")
        try:
            run("cp", "--sparse=always", str(image), str(survivor))
            run("umount", at)
            os.replace(survivor, image)
            run("mount", "-o", _OPTIONS, str(image), at)
        finally:
            survivor.unlink(missing_ok=True)


def fill(directory: Path) -> Path:
    """Allocate all free space of the directory's file system, and return the file that holds it. Raise OSError if this
    file cannot be created.
    """
    filler = directory / FILLER
    with filler.open("wb") as file:
        space = os.statvfs(directory)
        size, end = space.f_bavail * space.f_frsize, 0
        while size >= space.f_frsize:
            try:
                os.posix_fallocate(file.fileno(), end, size)
                end += size
            except OSError:
                size //= 2  # the file system needs part of the space itself
    return filler


def _make(image: Path, size_bytes: int) -> None:
    with image.open("wb") as file:
        file.truncate(size_bytes)
    run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image))
