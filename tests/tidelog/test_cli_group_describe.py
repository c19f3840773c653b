"""Descriptions of groups as the command prints them: the state, each member, and what is waited for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tidelog.cli.admin_factory import describe_group_with_notice
from tidelog.cli.groups.group_describe import _show_members, _show_partitions
from tidelog.client.admin.admin import Admin
from tidelog.errors import TimeoutError
from tidelog.groups.descriptions import ConsumerGroupDescription, ConsumerGroupState, MemberDescription
from tidelog.groups.lag import PartitionLag
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import MemberStage

TP = TopicPartition("orders", 0)


def a_member(name: str, *assignment: TopicPartition, stage: MemberStage | None = None) -> MemberDescription:
    return MemberDescription(name, None, f"client-{name}", "10.0.0.9", ("orders",), assignment, stage)


def a_group(state: ConsumerGroupState, *members: MemberDescription, pending: tuple[str, ...] = ()) -> Any:
    return ConsumerGroupDescription("billing", "consumer", "range", state, members, 2, pending)


def shown(capsys: pytest.CaptureFixture[str], group: ConsumerGroupDescription) -> list[str]:
    _show_partitions(group, {TP: PartitionLag(5, 0, 7, 2, 1000)}, None, as_json=False)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_state_is_shown_above_the_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, a_group(ConsumerGroupState.STABLE, a_member("one", TP)))
    assert lines[:2] == ["GROUP STATE COORDINATOR ASSIGNOR MEMBERS", "billing Stable 2 range 1"]
    assert lines[4].startswith("orders 0 5 7 2 1 one 10.0.0.9")


@pytest.mark.parametrize(
    ("state", "stage", "note"),
    [
        (ConsumerGroupState.PREPARING_REBALANCE, MemberStage.AWAITED, "has not rejoined since the rebalance began"),
        (ConsumerGroupState.PREPARING_REBALANCE, MemberStage.WAITING, "waits until every member has rejoined"),
        (ConsumerGroupState.COMPLETING_REBALANCE, MemberStage.AWAITED, "has not asked for its partitions yet"),
        (ConsumerGroupState.COMPLETING_REBALANCE, MemberStage.WAITING, "waits for its partitions"),
        (ConsumerGroupState.STABLE, MemberStage.AWAITED, "has not asked for its partitions yet"),
        (ConsumerGroupState.STABLE, MemberStage.ASSIGNED, "has no partitions; subscribed to orders"),
        (ConsumerGroupState.STABLE, None, "has no partitions; subscribed to orders"),
    ],
)
def test_member_without_partitions_has_a_line_that_says_why(
    state: ConsumerGroupState, stage: MemberStage | None, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = a_group(state, a_member("idle", stage=stage))
    [line] = [line for line in shown(capsys, group) if "idle" in line]
    assert line.startswith("- - - - - - idle 10.0.0.9") and note in line
    _show_partitions(group, {}, None, as_json=True)
    reported = json.loads(capsys.readouterr().out)
    [member] = reported["members_without_partitions"]
    assert (reported["state"], member["client_id"], member["host"]) == (state.value, "client-idle", "10.0.0.9")
    assert member["stage"] == stage and note in member["note"]


def test_pending_member_id_is_shown_as_never_joined(capsys: pytest.CaptureFixture[str]) -> None:
    group = a_group(ConsumerGroupState.EMPTY, pending=("client-7",))
    [line] = [line for line in shown(capsys, group) if "client-7" in line]
    assert "has never joined" in line
    _show_members(group, as_json=True)
    assert json.loads(capsys.readouterr().out)["never_joined"] == ["client-7"]
    _show_members(group, as_json=False)
    assert "has never joined" in capsys.readouterr().out


class SlowCoordinator:
    """An admin whose first calls find no coordinator."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.timeouts_ms: list[int] = []

    def describe_consumer_groups(self, group_ids: Sequence[str], timeout_ms: int) -> dict[str, str]:
        self.timeouts_ms.append(timeout_ms)
        if len(self.timeouts_ms) <= self.failures:
            raise TimeoutError("group 'g': no coordinator answered in 2 s (last: no leader)")
        return {"g": "described"}


def test_command_prints_after_two_seconds_that_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    slow = SlowCoordinator(failures=1)
    described: object = describe_group_with_notice(cast("Admin", slow), "g", 30)
    assert (described, slow.timeouts_ms) == ("described", [2_000, 28_000])
    said = capsys.readouterr().err
    assert said == "group 'g': no coordinator answered in 2 s (last: no leader); waiting up to 28 s more\n"


def test_command_says_nothing_about_a_quick_coordinator(capsys: pytest.CaptureFixture[str]) -> None:
    quick = SlowCoordinator(failures=0)
    describe_group_with_notice(cast("Admin", quick), "g", 30)
    assert (quick.timeouts_ms, capsys.readouterr().err) == ([2_000], "")


def test_command_fails_at_its_timeout() -> None:
    with pytest.raises(TimeoutError, match="no leader"):
        describe_group_with_notice(cast("Admin", SlowCoordinator(failures=2)), "g", 30)
    short = SlowCoordinator(failures=1)
    with pytest.raises(TimeoutError, match="no leader"):
        describe_group_with_notice(cast("Admin", short), "g", 1)
    assert short.timeouts_ms == [1_000]
