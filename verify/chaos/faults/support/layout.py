"""Name the files of a broker's data directory that faults damage. The names are Kafka's (docs/FORMAT.md)."""

from __future__ import annotations

from pathlib import Path

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = "boot.id"
META_PROPERTIES = "meta.properties"
LEADER_EPOCHS = "leader-epoch-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
#: A boot id that differs from the kernel's, as if the machine had been restarted since.
EARLIER_BOOT = "00000000-0000-0000-0000-000000000000\n"


def segments(log: Path) -> list[Path]:
    """Return the segments (.log) of a log's directory, oldest first. Empty if the directory does not exist."""
    return sorted(log.glob("*.log"))


def indexes(log: Path) -> list[Path]:
    """Return all offset and time indexes of a log's directory, in order of their paths."""
    return sorted((*log.glob("*.index"), *log.glob("*.timeindex")))


def forget_boot(broker_dir: Path) -> None:
    """Replace the boot id, so that the broker assumes that its machine went down and lost unsynced bytes."""
    (broker_dir / BOOT_ID).write_text(EARLIER_BOOT)
