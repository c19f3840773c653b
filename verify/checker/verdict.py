"""The verdict: a row for each invariant, and the violations with their evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition
from verify.checker.findings import Finding


class Status(StrEnum):
    PASSED = "passed"
    VIOLATED = "violated"
    NO_DATA = "no data"
    """Nothing was observed for the invariant, so it has not passed."""


@frozen
class Row:
    """The row of one invariant.

    key            for example "I1"
    name           the invariant in a few words
    observations   the number of things that were checked
    violations     the number of all violations
    """

    key: str
    name: str
    observations: int
    violations: int

    @property
    def status(self) -> Status:
        if self.violations:
            return Status.VIOLATED
        return Status.PASSED if self.observations else Status.NO_DATA


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict. `findings` has the first violations of each invariant; the rows count all of them.

    unread   partitions with acknowledgements (acks=all) or reads whose final logs are incomplete: the log is missing,
             or that of a replica if any replicas' logs were read
    """

    rows: Sequence[Row]
    findings: Sequence[Finding]
    unread: Sequence[TopicPartition] = ()

    @property
    def violated(self) -> Sequence[Row]:
        return [row for row in self.rows if row.status is Status.VIOLATED]

    @property
    def without_data(self) -> Sequence[Row]:
        return [row for row in self.rows if row.status is Status.NO_DATA]

    @property
    def exit_code(self) -> int:
        """Return the exit status: 1 for a violation, else 3 for an invariant without data or a missing final log, else
        0.
        """
        return 1 if self.violated else 3 if self.without_data or self.unread else 0

    def only(self, keys: Sequence[str]) -> Verdict:
        """Return the verdict on the invariants with these keys only, with the same `unread`."""
        rows = [row for row in self.rows if row.key in keys]
        return Verdict(rows, [each for each in self.findings if each.invariant in keys], self.unread)

    def to_json(self) -> dict[str, Any]:
        """Return `{"violated":[…],"no_data":[…],"unread":[…],"invariants":[…],"findings":[…]}`. Times are in ns of the
        histories' clock.
        """
        return {
            "violated": [row.key for row in self.violated],
            "no_data": [row.key for row in self.without_data],
            "unread": [list(tp) for tp in self.unread],
            "invariants": [
                {
                    "key": row.key,
                    "name": row.name,
                    "observations": row.observations,
                    "violations": row.violations,
                    "status": row.status.value,
                }
                for row in self.rows
            ],
            "findings": [
                {
                    "invariant": each.invariant,
                    "tp": None if each.tp is None else list(each.tp),
                    "t": each.t,
                    "says": each.says,
                    "operations": list(each.operations),
                }
                for each in self.findings
            ],
        }

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Verdict:
        """Return the verdict that `to_json` wrote. Raise KeyError, TypeError or ValueError if a field is invalid."""
        rows = [
            Row(str(r["key"]), str(r["name"]), int(r["observations"]), int(r["violations"]))
            for r in fields["invariants"]
        ]
        return cls(rows, [_finding(each) for each in fields["findings"]], [_tp(each) for each in fields["unread"]])

    def lines(self, *, most_findings: int = 3) -> Iterator[str]:
        """Yield a table for readers, the partitions of `unread`, and up to `most_findings` violations of each violated
        invariant with the number of the others.
        """
        width = max((len(row.name) for row in self.rows), default=0)
        yield f"{'':4}{'invariant':<{width}}  {'observations':>12}  {'violations':>10}  verdict"
        for row in self.rows:
            yield f"{row.key:<4}{row.name:<{width}}  {row.observations:>12,}  {row.violations:>10,}  {row.status.value}"
        if self.unread:
            yield ""
            yield f"unknown, because final logs are missing: {', '.join(map(str, self.unread))}"
        for row in self.violated:
            shown = [each for each in self.findings if each.invariant == row.key][:most_findings]
            yield ""
            for each in shown:
                yield str(each)
            if row.violations > len(shown):
                yield f"{row.key}: and {row.violations - len(shown):,} more"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _finding(fields: Mapping[str, Any]) -> Finding:
    tp = None if fields["tp"] is None else _tp(fields["tp"])
    operations = list(map(str, fields["operations"]))
    return Finding(str(fields["invariant"]), tp, int(fields["t"]), str(fields["says"]), operations)


def _tp(pair: Sequence[Any]) -> TopicPartition:
    topic, partition = pair
    return TopicPartition(str(topic), int(partition))
