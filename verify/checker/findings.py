"""What an invariant found: violations, each with the operations that prove it, and how much it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.frozen_dataclass import frozen
from tidelog.history.columns import SEQUENCE_BITS
from tidelog.model import TopicPartition

#: So many violations of one invariant are told in full; the others are counted.
TOLD: Final = 100


@frozen
class Finding:
    """One violation.

    invariant    "I1"
    t            of the last of the operations; 0 where it has no time
    says         what is wrong, in a sentence
    operations   each who, what and when: together they prove it
    """

    invariant: str
    tp: TopicPartition | None
    t: int
    says: str
    operations: Sequence[str] = ()

    def __str__(self) -> str:
        where = "" if self.tp is None else f" {self.tp}"
        return "\n    ".join([f"{self.invariant}{where}: {self.says}", *self.operations])


@dataclass(slots=True)
class Tally:
    """What one invariant has seen so far."""

    observations: int = 0
    violations: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Further violations are only counted: nobody needs to gather their proofs."""
        return len(self.findings) >= TOLD

    def add(self, finding: Finding) -> None:
        self.violations += 1
        if not self.is_full:
            self.findings.append(finding)


def seconds(t: int) -> str:
    """A moment, as people read it."""
    return f"{t / 1e9:.6f} s"


def record_name(record_id: int) -> str:
    """A record's id, as people read it: producer and sequence."""
    if record_id < 0:
        return "a damaged record"
    producer = record_id >> SEQUENCE_BITS
    return f"{producer}:{record_id - (producer << SEQUENCE_BITS)}"
