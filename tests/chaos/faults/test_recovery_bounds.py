"""Test which exceeded bounds of the catalogue are detected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.chaos.faults.test_bite_detection import T0, T1, evidence, with_t0
from tidelog.history.broker_events import BecomeLeader, BrokerEvent, IsrChange, Session
from verify.chaos.fault import Evidence, PartitionView
from verify.chaos.faults.support import recovery_bounds

S = 1_000_000_000


def evidence_of(*events: BrokerEvent, by: int = 2, lasted_s: float = 10) -> Evidence:
    """Return evidence with events of one broker, for a fault from 0 to 2 s."""
    healed = round(lasted_s * S)
    return replace(evidence(), injected=0, healed=healed, whole=healed + 2 * S, events={by: events})


def test_late_leader_is_found_by_its_own_history() -> None:
    again = evidence_of(BecomeLeader(2 * S, T0, 4, 0, 0), BecomeLeader(3 * S, T1, 6, 0, 0))
    assert recovery_bounds.led_late(again, [T0, T1], S, 1_000) == "t/1 had a leader again after 2.0 s; the limit is 1 s"
    assert recovery_bounds.led_late(again, [T0], S, 1_000) is None
    assert recovery_bounds.led_late(again, [T0, T1], S, 2_000) is None


def test_first_leader_of_a_later_epoch_ends_the_wait() -> None:
    before_and_after = [
        BecomeLeader(1, T0, 3, 0, 0),
        BecomeLeader(2 * S, T0, 4, 0, 0),
        BecomeLeader(9 * S, T0, 5, 0, 0),
    ]
    assert recovery_bounds.led_late(evidence_of(*before_and_after), [T0], 0, 1_000) is not None
    assert recovery_bounds.led_late(evidence_of(*before_and_after), [T0], 0, 2_000) is None
    assert recovery_bounds.led_late(evidence_of(), [T0], 0, 1) is None, "without histories nothing is known"


def sessions(*states: tuple[float, str]) -> Sequence[BrokerEvent]:
    return [Session(round(t * S), state) for t, state in states]


def test_reconnect_limit_counts_from_the_return_of_zookeeper() -> None:
    back = evidence_of(*sessions((1, "suspended"), (4, "expired"), (8.5, "connected")))
    assert recovery_bounds.reconnected_late(back, 7 * S, 2_000) is None
    assert (
        recovery_bounds.reconnected_late(back, 6 * S, 2_000)
        == "broker 2 was connected to ZooKeeper again after 2.5 s; the limit is 2 s"
    )


def test_broker_that_never_reconnects_is_late_at_the_end() -> None:
    lost = evidence_of(*sessions((1, "suspended")))
    assert (
        recovery_bounds.reconnected_late(lost, 9 * S, 2_000)
        == "broker 2 was connected to ZooKeeper again after 3.0 s; the limit is 2 s"
    )
    assert recovery_bounds.reconnected_late(lost, 11 * S, 2_000) is None


def test_reconnect_limit_counts_from_a_second_loss() -> None:
    again = evidence_of(*sessions((1, "suspended"), (2, "connected"), (8, "suspended"), (9.5, "connected")))
    assert recovery_bounds.reconnected_late(again, S, 2_000) is None
    assert recovery_bounds.reconnected_late(again, S, 1_400) is not None


def test_elections_are_counted_by_leader_epochs_per_started_minute() -> None:
    elected = with_t0(PartitionView(2, 7, (2, 3), 8))
    short, long = replace(evidence(elected), whole=50 * S), replace(evidence(elected), whole=70 * S)
    assert recovery_bounds.elected_often(short, 3) == "t/0 had 4 elections; the limit is 3"
    assert recovery_bounds.elected_often(short, 4) is None
    assert recovery_bounds.elected_often(long, 3) is None


def isr_changes(*seconds: float, ok: bool = True) -> list[BrokerEvent]:
    return [IsrChange(round(t * S), T0, [1, 2], 3, 7 + number, ok) for number, t in enumerate(seconds)]


def test_isr_changes_are_counted_during_the_fault() -> None:
    assert recovery_bounds.isr_changed_often(evidence_of(*isr_changes(1, 2), lasted_s=7), 5_000) is None
    three = isr_changes(1, 2, 3)
    assert (
        recovery_bounds.isr_changed_often(evidence_of(*three, lasted_s=7), 5_000)
        == "the ISR of t/0 changed 3 times; the limit is 2"
    )
    assert recovery_bounds.isr_changed_often(evidence_of(*three, lasted_s=10), 5_000) is None
    assert recovery_bounds.isr_changed_often(evidence_of(*isr_changes(1, 2, 7.5), lasted_s=7), 5_000) is None, (
        "it is healed by then"
    )
    assert recovery_bounds.isr_changed_often(evidence_of(*isr_changes(1, 2), *isr_changes(3, ok=False)), 5_000) is None
