"""What a log directory tells of the process that had it last: how that ended, and what of its work may be missing.

boot.id                the kernel's boot id of when it started; gone where a sync of its has failed, empty where a log
                       was damaged
.kafka_cleanshutdown   it closed every log in order, and none lacked what a process before it had lost
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from storage.file_names import BOOT_ID, CLEAN_SHUTDOWN
from storage.files import Files


@dataclass(frozen=True, slots=True)
class PreviousShutdown:
    """What counts of it at the next start.

    clean            it left its marker, so no log needs recovery
    sync_had_failed  what is not written again counts as not synced, whatever a sync says of it
    possibly_short   the machine may have gone down since, or a sync had failed: what was not synced may be missing; or
                     what was damaged was cut off. False after a clean shutdown, and after one that only ended the
                     process, since then the page cache survived.
    """

    clean: bool
    sync_had_failed: bool
    possibly_short: bool

    @classmethod
    def read(cls, path: Path, files: Files, *, newborn: bool, boot_id: str | None) -> PreviousShutdown:
        """`newborn`: there was none, the directory was nobody's before.

        `boot_id` names the run of the machine's kernel by now; None where it cannot be known.
        """
        clean = files.exists(path / CLEAN_SHUTDOWN)
        noted = files.read(path / BOOT_ID)
        last_boot = (noted or b"").decode("ascii", "replace").strip()
        same_boot = bool(last_boot) and last_boot == boot_id
        return cls(
            clean=clean,
            sync_had_failed=not clean and noted is None,
            possibly_short=not clean and not same_boot and not newborn,
        )
