"""A process that appends until it is killed: python -m tests.storage.appending_process DIRECTORY SEED.

Each batch depends on its base offset only (`batch_at`), so a reader of the log knows the expected bytes. After each
append, the process writes the base offset of the next batch to the standard output.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from storage.files import RealFiles
from storage.log.log import Log
from storage.log_manager import LogManager
from tests.storage.logs import config
from tidelog.model import TopicPartition
from tidelog.records import Codec, encode_batch

TP = TopicPartition("orders", 0)
CONFIG = config(segment_bytes=4_000_000, index_interval_bytes=4096, max_message_bytes=3_000_000)
FIRST_MS = 1_700_000_000_000
_CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.LZ4)


def batch_at(base_offset: int) -> bytes:
    """Return the batch at this offset: one to three records of some bytes to some megabytes, of similar times."""
    random = Random(base_offset)
    size = random.choice((10, 300, 5_000, 100_000, 700_000))
    filler = random.randbytes(1000)
    records = [
        (FIRST_MS + base_offset + random.randint(-50, 50), b"%d" % random.randrange(5), filler * (size // 1000 + 1), ())
        for _ in range(random.randint(1, 3))
    ]
    return encode_batch(records, codec=random.choice(_CODECS), base_offset=base_offset, leader_epoch=base_offset // 100)


def open_log(directory: Path) -> tuple[LogManager, Log]:
    """Open the log as a broker does after its process was killed and the machine kept running."""
    manager = LogManager.open((directory,), RealFiles(), 1, "c1", "boot")
    manager.open_logs(lambda topic: CONFIG)
    return manager, manager.get_or_create(TP, "id", CONFIG)


def main(directory: Path, seed: int) -> None:
    random = Random(seed)
    manager, log = open_log(directory)
    while True:
        base_offset = log.log_end_offset
        batch = batch_at(base_offset)
        if random.random() < 0.5:
            log.append_as_follower(batch)
        else:
            log.append_as_leader(bytes(8) + batch[8:], base_offset // 100, FIRST_MS + base_offset)
        os.write(1, b"%d\n" % log.log_end_offset)
        if random.random() < 0.02:
            log.flush(rolled_only=True)
            manager.checkpoint_recovery_points()
        if log.size_bytes > 20_000_000:
            os.write(1, b"0\n")
            log.truncate_fully_and_start_at(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
