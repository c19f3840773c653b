"""Whether the logs of a directory may lack what was acknowledged, and that the next process hears of it: `boot.id`."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from storage.file_names import BOOT_ID
from storage.files import Files
from tidelog.errors import StorageError

_LOG = logging.getLogger(__name__)


class DataLossMarker:
    """Of one directory. Any thread's.

    possibly_short  the process before left it so (`PreviousShutdown`), or what was damaged was cut off in this one, and
                    the cluster has not dealt with that since
    sync_failed     the page cache may hold what never reaches the disk; until the process ends nothing changes that
    """

    def __init__(self, path: Path, files: Files, boot_id: str, *, possibly_short: bool) -> None:
        self.possibly_short = possibly_short
        self.sync_failed = False
        self._file = path / BOOT_ID
        self._files = files
        self._boot_id = boot_id
        #: By itself: who notes that a sync has failed must not wait for the checkpoints of that disk.
        self._lock = threading.Lock()

    def vouch(self) -> None:
        """Nothing that was lost with an earlier run of the machine matters any more: from now on this run counts.

        Until then a process that ends early leaves the next one as doubtful as itself. StorageError.
        """
        with self._lock:
            if not self.sync_failed:
                self._files.replace(self._file, f"{self._boot_id}\n".encode("ascii"))
                self.possibly_short = False

    def note_failed_sync(self) -> None:
        """What the page cache holds may be forgotten at any time, though the machine runs on.

        So the next process must believe it as little as after a power failure. Unsynced, since after one it does not.
        """
        with self._lock:
            self.sync_failed = True
            try:
                self._files.remove(self._file)
            except StorageError as error:
                _LOG.error("a sync failed, and it could not be noted: %s", error)

    def note_loss(self) -> None:
        """A log is about to be cut where it is damaged: it may lack what was acknowledged, though no machine went down.

        Noted first, so that a process which ends in the midst leaves the next one in doubt. StorageError.
        """
        with self._lock:
            if not self.sync_failed and not self.possibly_short:  # which say as much to the next process
                self._files.replace(self._file, b"\n")
            self.possibly_short = True
