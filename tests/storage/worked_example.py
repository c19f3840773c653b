"""The log of the worked example in docs/FORMAT.md, in a log directory: batches at 0, 77, 146, 215, 284 and 353."""

from __future__ import annotations

from pathlib import Path

from tests.storage.logs import batch, open_log

STEM = "00000000000000000000"
LOG, INDEX, TIME_INDEX = f"{STEM}.log", f"{STEM}.index", f"{STEM}.timeindex"
SNAPSHOT = "00000000000000000007.snapshot"


def write_worked_example(directory: Path) -> Path:
    """Write the log, close it and return its directory."""
    log = open_log(directory / "orders-0", index_interval_bytes=100)
    for stamps in ((1000, 1003), (1001,), (1002,), (1007,), (1005,)):
        log.append_as_leader(batch(*stamps), 5, 1000)
    log.append_as_leader(batch(1006, value=b"six", producer_id=9, epoch=1, sequence=0), 5, 1000)
    log.assign_topic_id("AAAAAAAAAAAAAAAAAAAAAQ")
    log.close()
    (directory / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    return log.directory
