"""What each invariant promises, in a sentence for whoever has not read how it is decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROMISES: Final[Mapping[str, str]] = {
    "I1": "What was acknowledged (acks=all) is in the log, at its offset, on every replica.",
    "I2": "An offset always shows the same record, to everybody.",
    "I3": "No record of an idempotent producer is there twice.",
    "I4": "No record appears that nobody wrote, or that was refused.",
    "I5": "What was acknowledged before another record was sent stands before it.",
    "I6": "The records of one producer stand in the order in which it sent them.",
    "I7": "A consumer is shown every record once, without a gap.",
    "I8": "The end of a partition never moves backwards, and lies behind all that was acknowledged.",
    "I9": "What a consumer was shown stays in the log.",
    "I10": "A consumer is shown nothing beyond the high watermark.",
    "I11": "A replica's high watermark never falls within a leader epoch, while its process lives.",
    "I12": "One leader in each epoch, one controller in each controller epoch, and each change of the ISR counts once.",
    "I13": "What an old leader acknowledged late is in the log, too.",
    "I14": "An acknowledgement waits for enough replicas, and for all that are in sync.",
    "I15": "All replicas hold the same bytes.",
    "I16": "Leader epochs rise along the log, and the list of them agrees with it on every replica.",
    "I17": "A committed offset is never lost nor taken back, and a partition has one owner in each generation.",
    "I18": "A look-up by time finds the first record at or after that time.",
    "I19": "Partitions are available again within the time that the fault allows, and it costs nothing else.",
    "I20": "No request is acted upon after its deadline or from an epoch that is over.",
    "I21": "Nothing is left behind: no traceback, no open file, no thread, no memory.",
    "I22": "Every operation ends in time, with success or an error that is documented.",
    "I23": "Compaction keeps the last committed value of each key, and a tombstone goes after what it deletes.",
}


def number_of(invariant: str) -> int:
    """For sorting: I2 comes before I10."""
    return int(invariant[1:]) if invariant[1:].isdecimal() else len(PROMISES) + 1
