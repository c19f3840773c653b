"""Records in `boot.id` whether the logs of a directory may lack acknowledged records, for this process and the next."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from storage.file_names import BOOT_ID
from storage.files import Files
from tidelog.errors import StorageError

_LOG = logging.getLogger(__name__)


class DataLossMarker:
    """The data-loss state of one directory. Any thread may use it.

    possibly_short  acknowledged records may be missing, and the cluster has not dealt with that yet. Either the
                    previous process left the directory so (`PreviousShutdown`), or this process found data damaged or
                    missing
    flush_failed    a flush failed, so the page cache may hold data that never reaches the disk. True until the process
                    ends
    """

    def __init__(self, path: Path, files: Files, boot_id: str, *, possibly_short: bool) -> None:
        self.possibly_short = possibly_short
        self.flush_failed = False
        self._file = path / BOOT_ID
        self._files = files
        self._boot_id = boot_id
        #: A lock of its own, so that recording a failed flush never waits for a checkpoint on the same disk.
        self._lock = threading.Lock()

    def clear_possibly_short(self) -> None:
        """Clear `possibly_short` and write the boot id, because the cluster has dealt with all losses. StorageError.

        Do nothing after a failed flush. A process that ends before this call leaves the next process with
        `possibly_short` set.
        """
        with self._lock:
            if not self.flush_failed:
                self._files.replace(self._file, f"{self._boot_id}\n".encode("ascii"))
                self.possibly_short = False

    def record_flush_failure(self) -> None:
        """Set `flush_failed` and remove `boot.id`; an error of the removal is only logged.

        The page cache may drop the data although the machine keeps running. The next process must then treat the
        directory as after a power failure. The removal needs no flush, because after a real power failure the boot id
        differs anyway.
        """
        with self._lock:
            self.flush_failed = True
            try:
                self._files.remove(self._file)
            except StorageError as error:
                _LOG.error("%s: cannot be removed to record a failed flush: %s", self._file, error)

    def record_loss(self) -> None:
        """Set `possibly_short`, because acknowledged records may be missing. StorageError.

        An empty `boot.id` is written, unless a failed flush or an earlier loss is recorded. Called before a damaged log
        is truncated, so that a process that ends in between leaves the record behind.
        """
        with self._lock:
            if not self.flush_failed and not self.possibly_short:  # the disk already records either of these
                self._files.replace(self._file, b"\n")
            self.possibly_short = True
