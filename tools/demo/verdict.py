"""Holds the figures that the demo measures, and the conditions that they must meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

MIN_ACKS_BEFORE_KILL = 200


@dataclass
class Input:
    """The numbers of lines handed to the producer, and of the sources that they came from.

    `too_long` lines were left out, because no record can hold them; `too_long_places` names the first of them.
    """

    lines: int = 0
    too_long: int = 0
    too_long_places: list[str] = field(default_factory=list)
    sources: int = 0


@dataclass
class Failover:
    """The kill and its consequences; None: not measured.

    partitions        the partitions that the victim led
    gaps_s            the gap of each of them that has acknowledged again
    in_sync_again_s   the time from the victim's restart until all replicas were in sync
    unreached         partitions of the victim to which no record was sent after the kill, because the input had ended
    gap_s             the longest gap; None until each of the victim's partitions has acknowledged a record that was
                      sent after the kill
    """

    victim: int | None = None
    controller: int | None = None
    partitions: list[int] = field(default_factory=list)
    acks_in_second_before: int = 0
    unacknowledged: int = 0
    unreached: list[int] = field(default_factory=list)
    gap_s: float | None = None
    gaps_s: dict[int, float] = field(default_factory=dict)
    in_sync_again_s: float | None = None


@dataclass
class Audit:
    """The numbers of records by `scripts/jobs/audit.py`, which is `by_spark`.

    After an interruption or a failure only `acknowledged`, `read` and `lost` are known, without Spark.
    """

    acknowledged: int = 0
    read: int = 0
    lost: int = 0
    doubled: int = 0
    altered: int = 0
    misplaced: int = 0
    foreign: int = 0
    by_spark: bool = False


@dataclass
class Stream:
    """The numbers of lines that Spark counted from the chosen time on, beside the same count without Spark.

    starting_timestamp_ms   the chosen time; None: not chosen
    excluded, plain         lines before that time, and counted lines, both without Spark
    counted, late           lines that Spark counted, and that it dropped as later than the watermark
    missing, surplus        as in `Comparison`
    batches_…               batches with rows before the kill, until all replicas were in sync, and afterwards
    """

    starting_timestamp_ms: int | None = None
    excluded: int = 0
    plain: int = 0
    counted: int = 0
    late: int = 0
    missing: int = 0
    surplus: int = 0
    batches_before: int = 0
    batches_during: int = 0
    batches_after: int = 0
    failed_tasks: int = 0
    ended: bool = False


@dataclass
class Figures:
    """Everything that the demo prints and `--json` writes."""

    input: Input = field(default_factory=Input)
    failover: Failover = field(default_factory=Failover)
    audit: Audit = field(default_factory=Audit)
    stream: Stream = field(default_factory=Stream)
    interrupted: bool = False
    error: str | None = None
    seconds: float = 0.0

    def verdict(self) -> str:
        """Return the last line of the demo, with the main figures."""
        gap = "n/a" if self.failover.gap_s is None else f"{self.failover.gap_s:.3f}"
        audit = self.audit
        records = f"{audit.acknowledged} acknowledged, {audit.read} read, {audit.lost} lost, {audit.doubled} doubled"
        return f"verdict: {records}; failover gap {gap} s"

    def bite(self) -> list[str]:
        """Return the reasons why the kill proved nothing; empty if it hit a producer at work."""
        failover = self.failover
        reasons = []
        if failover.victim is None:
            return ["no broker was killed"]
        if failover.acks_in_second_before < MIN_ACKS_BEFORE_KILL:
            reasons.append(
                f"{failover.acks_in_second_before} acknowledgements in the second before it, not {MIN_ACKS_BEFORE_KILL}"
            )
        if not failover.unacknowledged:
            reasons.append("no record of the victim's partitions was unacknowledged")
        if failover.unreached:
            reasons.append("not all of the victim's partitions got a record after it")
        return reasons

    def failures(self) -> list[str]:
        """Return a line for each condition that does not hold, and one if the kill proved nothing; empty: success."""
        bite = "; ".join(self.bite())
        void = [f"the kill could not bite: {bite} (the input had {self.input.lines} lines)"] if bite else []
        return [*self._violations(), *void]

    @property
    def went_wrong(self) -> bool:
        """Return whether the files are worth keeping: not after Ctrl-C, nor if only the input was too short."""
        return not self.interrupted and any(self._violations())

    def _violations(self) -> Iterator[str]:
        if self.interrupted:
            yield "the demo was interrupted"
        if self.error:
            yield self.error
        audit, stream = self.audit, self.stream
        if not audit.acknowledged:
            yield "nothing was acknowledged"
        if not self.input.lines == audit.acknowledged == audit.read:
            yield f"lines sent, acknowledged and read differ: {self.input.lines}, {audit.acknowledged}, {audit.read}"
        for name in ("lost", "doubled", "altered", "misplaced", "foreign"):
            if count := getattr(audit, name):
                yield f"{count} records {name}"
        if self.interrupted or not self.input.lines:
            return
        if not audit.by_spark:
            yield "the audit did not run"
        if not stream.ended:
            yield "the stream did not end"
            return
        if stream.surplus or stream.missing != stream.late or stream.counted + stream.late != stream.plain:
            yield (
                f"the stream's counts are wrong: {stream.counted} lines and {stream.late} late, "
                f"plain Python counted {stream.plain} ({stream.missing} missing, {stream.surplus} too many)"
            )
        if not stream.excluded:
            yield "the chosen time excluded no record"
        if stream.failed_tasks:
            yield f"{stream.failed_tasks} Spark tasks failed"
        failover = self.failover
        if failover.victim is not None and not failover.unreached and failover.gap_s is None:
            yield "not all of the victim's partitions acknowledged again after the kill"
        if failover.victim is not None and failover.in_sync_again_s is None:
            yield "the killed broker did not come back in sync"
        if self.bite():
            return  # there were too few lines before, during and after the kill, which is already reported
        for when, batches in (
            ("before", stream.batches_before),
            ("during", stream.batches_during),
            ("after", stream.batches_after),
        ):
            if not batches:
                yield f"the stream made no progress {when} the failover"
