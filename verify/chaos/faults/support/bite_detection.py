"""Detect in the evidence that a fault has bitten. Each function returns a sentence, or None."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.history.broker_events import Truncate
from tidelog.model import TopicPartition
from verify.chaos.fault import Evidence
from verify.chaos.faults.support.fault_base import of

#: The reason that a broker gives when it truncates its log to that of its leader (`node.replication`).
DIVERGED = "the leader's epochs"


def leaders_changed(evidence: Evidence, tps: Collection[TopicPartition] | None = None, *, times: int = 1) -> str | None:
    """Detect a partition of these (None: of all) whose leader epoch rose by at least `times` from the first view to the
    last.
    """
    return _first(
        f"leader epoch {before.leader_epoch} → {after.leader_epoch} of {of(tp)}"
        for tp, before in sorted(evidence.before.partitions.items())
        if (tps is None or tp in tps)
        and (after := evidence.after.partitions.get(tp)) is not None
        and after.leader_epoch >= before.leader_epoch + times
    )


def left_isr(evidence: Evidence, brokers: Collection[int] | None = None) -> str | None:
    """Detect one of these brokers (None: any) that was in an ISR in the first view, and was missing there in any later
    one.
    """
    return _first(
        f"broker {broker} left the ISR of {of(tp)}"
        for tp, before in sorted(evidence.before.partitions.items())
        for broker in before.isr
        if (brokers is None or broker in brokers)
        and any(tp in view.partitions and broker not in view.partitions[tp].isr for view in evidence.views[1:])
    )


def registered_anew(evidence: Evidence, brokers: Collection[int] | None = None) -> str | None:
    """Detect one of these brokers (None: any) whose registration ended, whether or not it registered again."""
    known = evidence.before.broker_epochs or {}
    return _first(
        f"the registration of broker {broker} ended"
        for broker, epoch in sorted(known.items())
        if (brokers is None or broker in brokers)
        and any(
            view.broker_epochs is not None and view.broker_epochs.get(broker) != epoch for view in evidence.views[1:]
        )
    )


def all_registered_anew(evidence: Evidence, brokers: Collection[int]) -> str | None:
    """Detect that the registrations of all these brokers ended. Without brokers nothing is detected."""
    if brokers and all(registered_anew(evidence, {broker}) for broker in brokers):
        return f"the registrations of brokers {', '.join(map(str, sorted(brokers)))} ended"
    return None


def registered_again(evidence: Evidence, brokers: Collection[int], within_ms: float) -> str | None:
    """Detect one of these brokers whose registration a new one had replaced less than `within_ms`
    after the injection.
    """
    known = evidence.before.broker_epochs or {}
    for view in evidence.views[1:]:
        took_s = (view.t - evidence.injected) / 1e9
        for broker in set(brokers).intersection(known, view.broker_epochs or {}):
            if (view.broker_epochs or {})[broker] != known[broker] and took_s < within_ms / 1000:
                return f"broker {broker} was registered again after {took_s:.1f} s"
    return None


def registrations(evidence: Evidence, at_least: int) -> str | None:
    """Detect at least so many new registrations since the first view, of all brokers together."""
    seen = {each for view in evidence.views for each in (view.broker_epochs or {}).items()}
    count = len(seen - set((evidence.before.broker_epochs or {}).items()))
    return f"brokers registered anew {count} times" if count >= at_least else None


def controller_changed(evidence: Evidence) -> str | None:
    """Detect a controller epoch that is higher in the last view than in the first."""
    before, after = evidence.before.controller_epoch, evidence.after.controller_epoch
    return f"controller epoch {before} → {after}" if after > before else None


def removed_own_records(evidence: Evidence, brokers: Collection[int], since: int) -> str | None:
    """Detect one of these brokers that removed records of a partition at `since` or later, because the epochs of its
    new leader's log are others: records that it had appended itself as a leader.
    """
    return _first(
        f"broker {broker} removed records that {of(event.tp)}'s new leader does not have"
        for broker in sorted(brokers)
        for event in evidence.events.get(broker, ())
        if isinstance(event, Truncate) and event.t >= since and event.why == DIVERGED
    )


def slowed(evidence: Evidence, at_least_ms: float) -> str | None:
    """Detect a record that was acknowledged at least `at_least_ms` after its produce operation began."""
    if evidence.slowest_ms < at_least_ms:
        return None
    return f"a produce took {evidence.slowest_ms:,.0f} ms"


def paused(evidence: Evidence, at_least_ms: float) -> str | None:
    """Detect a partition without an acknowledged produce request for at least `at_least_ms`."""
    if evidence.longest_gap_ms < at_least_ms:
        return None
    return f"no produce of a partition was acknowledged for {evidence.longest_gap_ms:,.0f} ms"


def _first(signs: Iterable[str]) -> str | None:
    """Return the first sentence with the number of others, or None if there is none."""
    found = list(signs)
    if len(found) > 1:
        return f"{found[0]} and {len(found) - 1} more"
    return found[0] if found else None
