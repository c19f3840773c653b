"""Reads how the previous process that used a log directory ended, and whether records may be missing.

boot.id                the kernel's boot id when that process started; missing if one of its flushes failed, empty if a
                       log was damaged
.kafka_cleanshutdown   the process closed every log in order, and no log lacked records
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from storage.file_names import BOOT_ID, CLEAN_SHUTDOWN
from storage.files import Files


@dataclass(frozen=True, slots=True)
class PreviousShutdown:
    """The facts about the previous process that the next start needs.

    clean             the process left its clean-shutdown marker. A log is then checked only if its recovery point is
                      not recorded or differs from its end
    flush_had_failed  `boot.id` is missing without a clean shutdown, because a flush failed or the directory is new.
                      Data then counts as flushed only after it is written again
    possibly_short    acknowledged records may be missing, because a flush failed, damaged data was removed, or the
                      machine may have restarted. False in a new directory and after a clean shutdown. False also if
                      `boot.id` names the current boot, because the page cache then survived the process
    """

    clean: bool
    flush_had_failed: bool
    possibly_short: bool

    @classmethod
    def read(cls, path: Path, files: Files, *, is_new: bool, boot_id: str | None) -> PreviousShutdown:
        """Return the facts that the files in the directory at `path` show; change nothing.

        `is_new`: this broker uses the directory for the first time. `boot_id` names the current boot of the kernel;
        None if it is unknown.
        """
        clean = files.exists(path / CLEAN_SHUTDOWN)
        recorded = files.read(path / BOOT_ID)
        last_boot = (recorded or b"").decode("ascii", "replace").strip()
        same_boot = bool(last_boot) and last_boot == boot_id
        return cls(
            clean=clean,
            flush_had_failed=not clean and recorded is None,
            possibly_short=not clean and not same_boot and not is_new,
        )
