"""Collect the results of an invariant: violations with their evidence, and the number of observations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.frozen_dataclass import frozen
from tidelog.history.columns import SEQUENCE_BITS
from tidelog.model import TopicPartition

#: The number of violations per invariant that are described; others are only counted.
MOST_DESCRIBED: Final = 100


@frozen
class Finding:
    """One violation.

    invariant    the key, for example "I1"
    tp           the partition; None if the violation concerns none
    t            the time (ns) of the operation or event that shows the violation, or the end of the checked time span;
                 0 if unknown
    says         the violation in one sentence
    operations   the evidence, one text each: operations with their sources and times, and final logs
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
    """The results of one invariant so far.

    observations   the number of things that were checked; without any, the invariant has not passed
    violations     the number of all violations
    findings       the first MOST_DESCRIBED violations
    """

    observations: int = 0
    violations: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Return whether further violations are only counted, so that their evidence is not needed."""
        return len(self.findings) >= MOST_DESCRIBED

    def add(self, finding: Finding) -> None:
        self.violations += 1
        if not self.is_full:
            self.findings.append(finding)


def seconds(t: int) -> str:
    """Format a time (ns) for readers, in seconds."""
    return f"{t / 1e9:.6f} s"


def record_name(record_id: int) -> str:
    """Format a record id for readers as "producer:sequence"; a negative id is "a damaged record"."""
    if record_id < 0:
        return "a damaged record"
    producer = record_id >> SEQUENCE_BITS
    return f"{producer}:{record_id - (producer << SEQUENCE_BITS)}"
