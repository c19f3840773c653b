"""The files of a broker's data directory that faults damage; their names are Kafka's (docs/FORMAT.md)."""

from __future__ import annotations

from pathlib import Path

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BOOT_ID = "boot.id"
META_PROPERTIES = "meta.properties"
LEADER_EPOCHS = "leader-epoch-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
#: In place of the kernel's: as though the machine had gone down since.
EARLIER_BOOT = "00000000-0000-0000-0000-000000000000\n"


def segments(log: Path) -> list[Path]:
    """A log's segments, oldest first."""
    return sorted(log.glob("*.log"))


def indexes(log: Path) -> list[Path]:
    """All its indexes of offsets and of times."""
    return sorted((*log.glob("*.index"), *log.glob("*.timeindex")))


def forget_boot(broker_dir: Path) -> None:
    """The broker will take it that its machine went down, and with it what was not on the disk."""
    (broker_dir / BOOT_ID).write_text(EARLIER_BOOT)
