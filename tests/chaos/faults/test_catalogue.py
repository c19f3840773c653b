"""Test that every row of the fault catalogue is implemented, or documented as impossible."""

from __future__ import annotations

import re
from pathlib import Path

from verify.chaos.faults import catalogue, prerequisites
from verify.chaos.faults.support.fault_base import Timing
from verify.chaos.targets.process_target import SETTINGS

DECISION = Path(__file__).parents[3] / "docs" / "decisions" / "0017-proof.md"
ALL = [f"F{number}" for number in range(1, 56)]


def test_row_without_a_fault_has_a_reason_in_the_docs() -> None:
    missing = [row for row in ALL if row not in catalogue()]
    explained = set(re.findall(r"^- (F\d+)\b", DECISION.read_text(), re.MULTILINE))
    assert set(missing) <= explained, "neither made nor explained"


def test_the_catalogue_is_in_order_and_its_faults_know_their_rows() -> None:
    found = catalogue()
    assert list(found) == [row for row in ALL if row in found]
    names = [(row, kind().name) for row, kinds in found.items() for kind in kinds]
    assert len(set(names)) == len(names)
    assert all(kind().row == row for row, kinds in found.items() for kind in kinds)


def test_each_fault_is_new_and_lasts_for_some_time() -> None:
    for kinds in catalogue().values():
        for kind in kinds:
            least, most = kind().lasts_ms
            assert 0 <= least <= most <= 60_000
            assert kind() is not kind()


def test_duration_of_a_fault_follows_the_session_timeout() -> None:
    (zombie,) = catalogue(Timing(session_timeout_ms=9_000))["F7"]
    assert zombie().lasts_ms[0] > 9_000
    (dozing,) = catalogue(Timing(session_timeout_ms=9_000))["F8"]
    assert dozing().lasts_ms[1] < 9_000


def test_each_fault_has_a_bound_or_leaves_too_few_replicas() -> None:
    for kinds in catalogue().values():
        for kind in kinds:
            fault = kind()
            bound, row = fault.availability, f"{fault.row} {fault.name}"
            assert bound.most_gap_ms is not None or not bound.leaves_majority, row
            # No fault may cost more than its duration and the time to reconnect.
            longest = max(fault.lasts_ms[1], Timing().shrunk_ms) + Timing().reconnected_ms
            assert bound.most_gap_ms is None or bound.most_gap_ms <= longest, row


def test_bound_of_a_killed_leader_is_below_the_session_timeout() -> None:
    heard_before_ms = Timing().session_timeout_ms / 6
    assert Timing().refused_ms < Timing().session_timeout_ms - heard_before_ms


def test_all_rows_together_last_for_half_of_ten_minutes() -> None:
    longest_ms = [max(kind().lasts_ms[1] for kind in kinds) for row, kinds in catalogue().items() if row != "F37"]
    assert sum(longest_ms) < 300_000


def test_default_durations_are_those_of_an_own_cluster() -> None:
    assert Timing() == Timing(int(SETTINGS["zookeeper_session_timeout_ms"]), int(SETTINGS["replica_lag_time_max_ms"]))


def test_every_buildable_need_has_a_prerequisite() -> None:
    built = {prerequisite.need for prerequisite in prerequisites()}
    needed = {need for kinds in catalogue().values() for kind in kinds for need in kind().needs}
    assert built <= needed
    assert {need for need in needed if need.name in ("NETWORK", "DISKS", "SHIM")} == built
