"""Long listings of groups, directories, connections and checks: the worst rows come first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tidelog.cli.cluster import clients as clients_module
from tidelog.cli.cluster import doctor as doctor_module
from tidelog.cli.cluster import logdirs as logdirs_module
from tidelog.cli.cluster import logdirs_move as move_module
from tidelog.cli.groups import group as group_module
from tidelog.cli.groups import group_migrate as migrate_module
from tidelog.cli.groups import group_remove_member as remove_module
from tidelog.cli.groups.group_describe import _Rate, _show_members, _show_partitions
from tidelog.cli.groups.group_reset import _show as show_reset
from tidelog.cli.terminal.long_tables import WORST_ROWS
from tidelog.client.diagnosis.doctor_checks import Check, State
from tidelog.errors import GroupIdNotFoundError, TidelogError, TimeoutError
from tidelog.groups.descriptions import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupListings,
    ConsumerGroupState,
    MemberDescription,
)
from tidelog.groups.lag import PartitionLag
from tidelog.groups.migration import Migration, OffsetMigration
from tidelog.groups.reset import Adjustment, OffsetReset
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import LogDir, LogDirReplica
from tidelog.protocol.operator_messages import ConnectionReport, TopicUse

STABLE = ConsumerGroupState.STABLE


def not_shown(count: int, noun: str, whole: str = "--all shows them") -> str:
    return f"{count - WORST_ROWS:,} of {count:,} {noun} are not shown: {whole}"


def run(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, command: click.Command, admin: object, *arguments: str
) -> Result:
    """Run the command with this admin, whose methods answer as the test says."""

    @contextmanager
    def open_admin(*_: Any, **__: Any) -> Iterator[object]:
        yield admin

    monkeypatch.setattr(module, "open_admin", open_admin)
    return CliRunner().invoke(command, list(arguments))


class Answers:
    """An admin each of whose methods returns one value, or calls a function, whatever the arguments are."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        answer = self._answers[name]
        return answer if callable(answer) else lambda *_, **__: answer


def a_member(name: str, *assigned: TopicPartition) -> MemberDescription:
    return MemberDescription(name, None, "client", "10.0.0.9", ("t",), assigned)


def a_group(*members: MemberDescription, pending: tuple[str, ...] = ()) -> Any:
    return ConsumerGroupDescription("g", "consumer", "range", STABLE, members, 2, pending)


# --- groups --------------------------------------------------------------------------------------------


def test_list_of_many_groups_has_rebalancing_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(number: int) -> ConsumerGroupState:
        return (
            ConsumerGroupState.PREPARING_REBALANCE
            if number == 70
            else STABLE
            if number < 9
            else ConsumerGroupState.EMPTY
        )

    listed = tuple(ConsumerGroupListing(f"g{number:03}", "consumer", state(number), 1) for number in range(1_000))
    described = {"g005": a_group(a_member("a"), a_member("b")), "g000": a_group(a_member("c"))}
    admin = Answers(list_consumer_groups=ConsumerGroupListings(listed, {}), describe_consumer_groups=described)
    result = run(monkeypatch, group_module, group_module.list_, admin)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["1,000 groups: 1 PreparingRebalance, 9 Stable, 990 Empty", "members 1–2, 3 in all"]
    assert [line.split()[0] for line in lines[3:7]] == ["g070", "g005", "g000", "g001"]
    assert (len(lines), result.stderr) == (3 + WORST_ROWS, not_shown(1_000, "groups") + "\n")
    assert len(run(monkeypatch, group_module, group_module.list_, admin, "--all").stdout.splitlines()) == 1_001
    shown = run(monkeypatch, group_module, group_module.list_, admin, "--json")
    assert len(json.loads(shown.stdout)["groups"]) == 1_000


def test_error_of_a_list_names_five_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: Mapping[int, TidelogError] = {number: TimeoutError("no answer") for number in range(1, 9)}
    admin = Answers(list_consumer_groups=ConsumerGroupListings((), errors), describe_consumer_groups={})
    result = run(monkeypatch, group_module, group_module.list_, admin)
    assert "brokers 1, 2, 3, 4, 5 and 3 more did not list their groups" in result.stderr


def test_error_of_a_deletion_names_five_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"g{number}" for number in range(8)]
    admin = Answers(delete_consumer_groups={name: GroupIdNotFoundError("gone") for name in names})
    result = run(monkeypatch, group_module, group_module.delete, admin, *names)
    assert str(result.exception).count("no group") == 5 and str(result.exception).endswith("; and 3 more groups")


def test_error_of_a_removal_names_five_members(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [word for number in range(8) for word in ("--member-id", f"m{number}")]
    admin = Answers(remove_group_members=lambda name, members: {each: TidelogError(f"no {each}") for each in members})
    result = run(monkeypatch, remove_module, remove_module.remove_member, admin, "g", *named)
    assert "no member_id 'm4'; and 3 more members" in result.stderr and "m5" not in result.stderr


def test_lag_of_many_partitions_is_short_and_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    tps = [TopicPartition("t", number) for number in range(2_000)]
    lags = {tp: PartitionLag(10, 0, 10 + tp.partition % 50, tp.partition % 50, 2_000) for tp in tps}
    lags[tps[3]] = PartitionLag(None, 0, 10, 10)
    lags[tps[4]] = PartitionLag(5, 7, 10, 3)
    lags[tps[5]] = PartitionLag(50, 7, 10, 0)
    lags[tps[6]] = PartitionLag(5, error=TimeoutError("no answer"))
    group = a_group(a_member("m", *tps), a_member("idle"), pending=("new",))
    with pytest.raises(click.ClickException, match="1 partition of 2000 did not answer"):
        _show_partitions(group, lags, None, as_json=False)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()[3:]
    assert lines[0] == (
        "2,002 rows: 1 that did not answer, 1 with records deleted unread, 1 past the log's end, "
        "2 of members without partitions, 1 with nothing committed, 1,956 behind, 40 caught up"
    )
    assert lines[1] == "seconds 2; lag 0–49, 48,995 in all"
    assert [line.split()[1] for line in lines[3:10]] == ["6", "4", "5", "-", "-", "3", "49"]
    assert (len(lines), printed.err) == (3 + WORST_ROWS, not_shown(2_002, "rows") + "\n")


def test_sums_of_rates_are_rounded(capsys: pytest.CaptureFixture[str]) -> None:
    tps = [TopicPartition("t", number) for number in range(60)]
    rates = {tp: _Rate(0.1, 0.7) for tp in tps[:3]}
    _show_partitions(a_group(), {tp: PartitionLag(10, 0, 10, 0, 0) for tp in tps}, rates, as_json=False)
    summary = capsys.readouterr().out.splitlines()[4]
    assert summary == "seconds 0; lag 0, 0 in all; committed/s 0.1, 0.3 in all; written/s 0.7, 2.1 in all"


def test_member_of_many_partitions_has_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    tps = [TopicPartition("t", number) for number in range(2_000)]
    others = [TopicPartition(f"u{number:02}", 0) for number in range(21)]
    members = [a_member("m", *tps, *others), a_member("n", *(TopicPartition("t", 2 * number) for number in range(32)))]
    _show_members(a_group(*members), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split(maxsplit=5)[5].split("   ")[0].startswith("t:0–1999 u00:0 u01:0")
    assert "u18:0 and 2 more topics" in lines[1]
    assert ",34,36,38 and 12 more" in lines[2]
    _show_members(a_group(*members), as_json=False, shows_all=True)
    assert "t:0,1,2,3," in (shown := capsys.readouterr().out) and "more" not in shown


def test_many_members_have_those_without_partitions_first(capsys: pytest.CaptureFixture[str]) -> None:
    members = [a_member(f"m{number}", TopicPartition("t", number)) for number in range(60)]
    _show_members(a_group(*members, a_member("idle"), pending=("new",)), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "62 rows: 2 of members without partitions, 60 of members with partitions",
        "partitions 0–1, 60 in all",
    ]
    assert [line.split()[0] for line in lines[3:6]] == ["idle", "new", "m0"]


def test_reset_of_many_partitions_is_short_and_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    plan = {TopicPartition("t", number): OffsetReset(100, 100 - number) for number in range(60)}
    plan[TopicPartition("t", 60)] = OffsetReset(5, error=TimeoutError("no answer"))
    plan[TopicPartition("t", 61)] = OffsetReset(5, 9, adjustment=Adjustment.LOG_START)
    plan |= {TopicPartition("t", number): OffsetReset(0, 0, adjustment=Adjustment.EMPTY) for number in (62, 63)}
    show_reset(plan, shows_all=False)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:2] == [
        "62 partitions: 1 that failed, 1 with an adjusted offset, 59 that move, 1 that stay",
        "change -59–4, -1,766 in all",
    ]
    assert [line.split()[1] for line in lines[3:6]] == ["60", "61", "59"]
    assert lines[-1] == "t: 2 of 64 partitions (62, 63) are empty, and the group stays at their end"
    assert printed.err == not_shown(62, "partitions") + "\n"
    show_reset(plan, shows_all=True)
    assert len(capsys.readouterr().out.splitlines()) == 65


def test_migration_of_many_offsets_is_whole_only_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {TopicPartition("t", number): OffsetMigration(5, None, Migration.MOVE) for number in range(60)}
    plan[TopicPartition("t", 60)] = OffsetMigration(5, 5, Migration.SAME)
    plan[TopicPartition("t", 61)] = OffsetMigration(5, 7, Migration.KEEP)
    plan[TopicPartition("t", 62)] = OffsetMigration(None, None, Migration.REFUSE, TidelogError("no such partition"))
    admin = Answers(migrate_zookeeper_group=plan, list_zookeeper_groups=["g"])
    result = run(monkeypatch, migrate_module, migrate_module.migrate, admin, "--all")
    lines = result.stdout.splitlines()
    assert lines[0] == "63 offsets: 1 that failed, 60 that move, 1 that stay, 1 that are committed"
    assert [line.split()[2] for line in lines[2:4]] == ["62", "0"]
    assert not_shown(63, "offsets", "--json shows them") in result.stderr
    shown = run(monkeypatch, migrate_module, migrate_module.migrate, admin, "--all", "--json")
    assert len(json.loads(shown.stdout)["groups"][0]["partitions"]) == 63


# --- directories, connections and checks ---------------------------------------------------------------


def test_many_directories_have_offline_and_full_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    described: dict[int, tuple[LogDir, ...]] = {
        number: (LogDir("/d", 0, None, (LogDirReplica("t", 0, 5, 0),), 1_000, number),) for number in range(1, 60)
    }
    described[60] = (LogDir("/d", 56, "I/O error"),)
    admin = Answers(describe_log_dirs=described)
    result = run(monkeypatch, logdirs_module, logdirs_module.logdirs, admin)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["60 directories: 1 offline, 59 online", "logs 1, 59 in all"]
    assert [line.split()[0] for line in lines[3:5]] == ["60", "1"]
    assert result.stderr == not_shown(60, "directories") + "\n"
    assert len(run(monkeypatch, logdirs_module, logdirs_module.logdirs, admin, "--all").stdout.splitlines()) == 61


def test_many_logs_have_arriving_and_late_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = tuple(LogDirReplica("t", number, 5, 0) for number in range(60))
    described = {1: (LogDir("/d", 0, None, (*replicas, LogDirReplica("t", 3, 5, 80, True)), 1_000, 9),)}
    admin = Answers(describe_log_dirs=described, describe_topics=[])
    monkeypatch.setattr(
        logdirs_module, "_lags", lambda *_: {(1, TopicPartition("t", number)): number % 2 for number in range(59)}
    )
    result = run(monkeypatch, logdirs_module, logdirs_module.logdirs, admin, "--topic", "t")
    lines = result.stdout.splitlines()
    assert lines[:2] == ["61 logs: 1 arriving, 30 behind or without a known lag, 30 caught up", "lag 0–80"]
    assert [line.split()[1] for line in lines[3:6]] == ["t-3", "t-59", "t-1"]


def test_many_moves_between_directories_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = LogDir("/new", 0, None, (LogDirReplica("t", 59, 5, 80, True),))
    admin = Answers(alter_replica_log_dirs=None, describe_log_dirs={1: (moving,)})
    named = [f"t/{number}" for number in range(60)]
    result = run(monkeypatch, move_module, move_module.move, admin, "--broker", "1", "--to", "/new", *named)
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "60 replicas: 1 that move, 59 in the directory",
        "t/59 moves to /new of broker 1",
        "t/0 is in /new of broker 1",
    ]
    assert (len(lines), result.stderr) == (1 + WORST_ROWS, not_shown(60, "replicas") + "\n")


def test_many_clients_have_those_with_the_most_connections_first(monkeypatch: pytest.MonkeyPatch) -> None:
    unused = TopicUse((), 0, True)
    reports = [
        ConnectionReport(f"c{number:03}", "x", "1", "h", 9, "KAFKA", (), unused, unused, 0, 0, 0, 0)
        for number in (*range(100), 42)
    ]
    admin = Answers(describe_clients={1: tuple(reports)})
    result = run(monkeypatch, clients_module, clients_module.clients, admin)
    lines = result.stdout.splitlines()
    assert lines[0] == "connections 1–2, 101 in all"
    assert [line.split()[0] for line in lines[2:4]] == ["c042", "c000"]
    assert result.stderr == not_shown(100, "clients", "--all shows each connection") + "\n"
    assert len(run(monkeypatch, clients_module, clients_module.clients, admin, "--all").stdout.splitlines()) == 102


def test_error_of_clients_names_five_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Answers(describe_clients={number: TimeoutError("no answer") for number in range(1, 9)})
    result = run(monkeypatch, clients_module, clients_module.clients, admin)
    assert "8 brokers of 8 did not answer: broker 1: no answer; " in result.stderr
    assert "broker 5: no answer; and 3 more" in result.stderr and "broker 6" not in result.stderr


def test_many_checks_have_failures_and_warnings_first(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check(f"broker {number}", State.OK, "ready") for number in range(60)]
    checks += [Check("clocks", State.WARNING, "they differ", "follow NTP"), Check("disk", State.FAILURE, "it is full")]
    monkeypatch.setattr(doctor_module, "_checks", lambda *_: checks)
    result = CliRunner().invoke(doctor_module.doctor, [], standalone_mode=False)
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "62 checks: 1 failed, 1 with a warning, 60 ok",
        "failure  disk       it is full",
        "warning  clocks     they differ; follow NTP",
        "ok       broker 0   ready",
    ]
    assert (result.return_value, result.stderr) == (1, not_shown(62, "checks") + "\n")
    assert len(CliRunner().invoke(doctor_module.doctor, ["--all"], standalone_mode=False).stdout.splitlines()) == 62
    shown = CliRunner().invoke(doctor_module.doctor, ["--json"], standalone_mode=False)
    assert len(json.loads(shown.stdout)["checks"]) == 62
