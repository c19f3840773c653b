"""State the promise of each invariant in one sentence for readers of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROMISES: Final[Mapping[str, str]] = {
    "I1": "Every record acknowledged with acks=all is in the log, at its offset, on every replica.",
    "I2": "An offset returns the same record to every reader at every time.",
    "I3": "No record of an idempotent producer is in the log twice.",
    "I4": "The log contains only records that a client sent, and no refused ones.",
    "I5": "A record that was acknowledged before another one was sent has the smaller offset.",
    "I6": "The records of one producer are in the order in which it sent them.",
    "I7": "A consumer receives every record once, without a gap.",
    "I8": "The end offset of a partition never decreases, and is above all acknowledged offsets.",
    "I9": "A record that a consumer received stays in the log.",
    "I10": "A consumer receives no record at or above the high watermark.",
    "I11": "A replica's high watermark never decreases within a leader epoch while its process runs.",
    "I12": "Each leader epoch and each controller epoch has one owner, and each change of the ISR counts once.",
    "I13": "A record that a replaced leader acknowledged late is in the log too.",
    "I14": "An acknowledgement waits for min.insync.replicas and for all replicas in sync.",
    "I15": "All replicas hold the same bytes.",
    "I16": "Leader epochs increase along the log, and each replica's epoch checkpoint agrees with its log.",
    "I17": "A committed offset is never lost or reverted, and a partition has one owner in each generation.",
    "I18": "A look-up by time finds the first record at or after that time.",
    "I19": "Partitions are available again in time, and the fault exceeds no other bound.",
    "I20": "No broker executes a request after its deadline or from an old epoch.",
    "I21": "Brokers leak nothing and log no traceback: open files, threads and memory return to their level.",
    "I22": "Every operation ends in time, with success or a documented error.",
    "I23": "Compaction keeps the last committed value of each key, and a tombstone until its older records are gone.",
}


def number_of(invariant: str) -> int:
    """Return the number of an invariant as a sort key: I2 comes before I10, and an unknown name last."""
    return int(invariant[1:]) if invariant[1:].isdecimal() else len(PROMISES) + 1
