"""Commands show a long table as a summary and its worst rows; `--all` shows all rows, and `--json` has everything."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.tidelog.clients import in_memory, put
from tests.tidelog.fake_cluster import FakeCluster
from tidelog import Admin, Consumer
from tidelog.cli.reassignments.changes import StartedChange, lost_replicas
from tidelog.cli.reassignments.progress import Progress
from tidelog.cli.reassignments.reassign import _show as show_reassignment
from tidelog.cli.terminal.long_tables import MOST_ROWS, WORST_ROWS, Kind, Row, show_rows
from tidelog.cli.topics import partitions as partitions_module
from tidelog.cli.topics import topic as topic_module
from tidelog.cli.topics.offsets import offsets
from tidelog.cli.topics.record_deletion import _PLANNED, Deletion
from tidelog.cli.topics.topic_times import show_times
from tidelog.client.admin.admin_results import PartitionDescription
from tidelog.client.admin.topic_time_spans import PartitionTimes
from tidelog.clock import SystemClock
from tidelog.errors import ElectionNotNeededError, PreferredLeaderNotAvailableError, TidelogError, TimeoutError
from tidelog.model import TopicPartition
from tidelog.records import RecordTime

MANY = 10_000
#: A summary of two lines, the headings, the worst rows and the kind of cluster.
MOST_LINES = 2 + 1 + WORST_ROWS + 1
#: The options of each command. The time limit is long, because a busy machine takes seconds for 10,000 partitions.
CONNECTION = ("--bootstrap-servers", "fake:1001", "--timeout", "600")
KIND = Kind(("partition", "lag"), ("unled", "lagging", "well"), ranges=("partition",), sums=("lag",))


def a_row(number: int, state: str = "well", lag: int | None = 0) -> Row:
    return Row((number, lag), state, lag or 0, number)


def not_shown(count: int, noun: str) -> str:
    return f"{count - WORST_ROWS:,} of {count:,} {noun} are not shown: --all shows them\n"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def run(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a command on the fake cluster."""

    @contextmanager
    def open_admin(*_: Any, **__: Any) -> Iterator[Admin]:
        with in_memory(Admin, cluster) as admin:
            yield admin

    for module in (topic_module, partitions_module):
        monkeypatch.setattr(module, "open_admin", open_admin)
    monkeypatch.setattr("tidelog.client.consumer.consumer.Consumer", partial(_consumer, cluster))
    return lambda command, *arguments: CliRunner().invoke(command, [*CONNECTION, *arguments])


def _consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    del options["bootstrap_servers"]
    return in_memory(Consumer, cluster, **options)


def lines_of(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


# --- the rule ------------------------------------------------------------------------------------------


def test_table_at_the_limit_is_shown_whole_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(KIND, [a_row(number, lag=number) for number in range(MOST_ROWS)], shows_all=False)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split() == ["PARTITION", "LAG"]
    assert [int(line.split()[0]) for line in printed.out.splitlines()[1:]] == list(range(MOST_ROWS))
    assert printed.err == ""


def test_long_table_has_a_summary_and_the_worst_rows_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [a_row(number) for number in range(MOST_ROWS - 4)]
    rows += [a_row(46, "lagging", 5), a_row(47, "lagging", 70), a_row(48, "unled", None), a_row(49), a_row(50)]
    show_rows(KIND, rows, shows_all=False)
    printed = capsys.readouterr()
    summary, ranges, _, *shown = printed.out.splitlines()
    assert summary == "51 partitions: 1 unled (48), 2 lagging (46, 47), 48 well (0–45, 49–50)"
    assert ranges == "partition 0–50; lag 0–70, 75 in all"
    assert [int(line.split()[0]) for line in shown] == [48, 47, 46, *range(17)]
    assert printed.err == not_shown(51, "partitions")


def test_one_state_of_all_rows_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(KIND, [a_row(number) for number in range(51)], shows_all=False)
    assert capsys.readouterr().out.splitlines()[:2] == ["51 partitions, all well", "partition 0–50; lag 0, 0 in all"]


def test_numbers_that_are_all_unknown_have_no_range(capsys: pytest.CaptureFixture[str]) -> None:
    kind = Kind(("partition", "lag"), sums=("lag",))
    show_rows(kind, [Row((number, None)) for number in range(51)], shows_all=False)
    assert capsys.readouterr().out.splitlines()[0].split() == ["PARTITION", "LAG"]


def test_all_shows_every_row_of_a_long_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(KIND, [a_row(number) for number in range(60)], shows_all=True)
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), printed.err) == (61, "")


def test_lines_on_standard_error_stay_there(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(Kind((), noun="line"), [Row((f"line {number}",)) for number in range(51)], shows_all=False, err=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[::WORST_ROWS] == ["line 0", "31 of 51 lines are not shown: --all shows them"]


# --- topics --------------------------------------------------------------------------------------------


def test_description_of_many_partitions_is_short_and_worst_first(run: Any, cluster: FakeCluster) -> None:
    created = cluster.create("t", MANY)
    created[7].leader = created[9_998].leader = -1
    put(created[5], b"a", b"b", b"c")
    result = run(topic_module.describe, "t")
    lines = lines_of(result)
    assert len(lines) <= MOST_LINES
    assert lines[0] == "10,000 partitions: 2 without a leader (7, 9998), 9,998 in sync (0–6, 8–9997, 9999)"
    assert lines[1] == "epoch 0; high watermark 0–3; log end 0–3"
    assert [line.split()[:2] for line in lines[3:6]] == [["7", "none"], ["9998", "none"], ["0", "1"]]
    assert result.stderr == not_shown(MANY, "partitions")


@pytest.mark.parametrize(
    ("changes", "state", "weight"),
    [
        ({"leader": -1, "isr": (1,)}, "without a leader", 0),
        ({"isr": (1,), "lag": {2: 9}}, "under-replicated", 9),
        ({"isr": (1,), "lag": {2: None}}, "under-replicated", math.inf),
        ({"high_watermark": None}, "whose leader did not answer", 0),
        ({"lag": {2: 3}}, "in sync", 3),
    ],
)
def test_state_and_lag_say_how_bad_a_partition_is(changes: dict[str, Any], state: str, weight: float) -> None:
    known: dict[str, Any] = {"leader": 1, "leader_epoch": 0, "replicas": (1, 2), "isr": (1, 2), "high_watermark": 0}
    row = topic_module._row(PartitionDescription(4, **known | changes))
    assert (row.state, row.weight, row.number) == (state, weight, 4)


def test_all_and_json_describe_every_partition(run: Any, cluster: FakeCluster) -> None:
    cluster.create("t", MANY)
    result = run(topic_module.describe, "t", "--all")
    assert len(lines_of(result)) == MANY + 2 and result.stderr == ""
    described = json.loads(run(topic_module.describe, "t", "--json").stdout)
    assert [each["partition"] for each in described["partitions"]] == list(range(MANY))


def test_list_of_many_topics_has_every_name(run: Any, cluster: FakeCluster) -> None:
    names = [f"topic-{number:04}" for number in range(2_000)]
    for name in names:
        cluster.create(name)
    result = run(topic_module.list_)
    assert (lines_of(result), result.stderr) == (names, "")
    assert json.loads(run(topic_module.list_, "--json").stdout) == {"topics": names}


def test_offsets_of_many_partitions_are_short_and_worst_first(run: Any, cluster: FakeCluster) -> None:
    created = cluster.create("t", MANY)
    for each in created[:60]:
        put(each, b"a", at_ms=1_000)
    put(created[60], b"late", at_ms=5_000)
    put(created[61], b"hidden", at_ms=5_000)
    created[61].high_watermark = 0
    result = run(offsets, "t", "--at", "@4000")
    lines = lines_of(result)
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith("62 partitions: 1 above the high watermark (61), 1 that begin later (60)")
    assert lines[0].endswith("60 that end earlier (0–59)")
    assert [line.split()[0] for line in lines[3:6]] == ["61", "60", "0"]
    assert "are empty" in lines[-1] and result.stderr == not_shown(62, "partitions")
    assert len(lines_of(run(offsets, "t", "--at", "@4000", "--all"))) == MANY + 1
    assert len(json.loads(run(offsets, "t", "--at", "@4000", "--json").stdout)["partitions"]) == MANY


def test_segments_of_many_partitions_are_short(run: Any, cluster: FakeCluster) -> None:
    created = cluster.create("t", MANY)
    put(created[3], b"a")
    result = run(offsets, "t", "--before", "@4000")
    assert lines_of(result)[0] == (
        "10,000 partitions: 9,999 without such a segment (0–2, 4–9999), 1 with an offset (3)"
    )
    assert len(lines_of(result)) <= MOST_LINES
    assert len(lines_of(run(offsets, "t", "--before", "@4000", "--all"))) == MANY + 1


def test_times_of_many_partitions_are_short_and_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    ahead = RecordTime(0, SystemClock().now_ms() + 10 * 3_600_000)
    times = [PartitionTimes(number, 0, number, 10, ahead, (ahead,)) for number in range(1, 200)]
    times += [PartitionTimes(200, 0, 5, 10), PartitionTimes(201, error=TimeoutError("no answer"))]
    admin: Any = SimpleNamespace(
        describe_times=lambda topic: times, describe_cluster=lambda: SimpleNamespace(kind="Tidelog")
    )
    with pytest.raises(click.ClickException, match="1 partition of 201 did not answer"):
        show_times(admin, "t", shows_all=False, as_json=False)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:2] == [
        "201 partitions: 1 that did not answer (201), 199 with a warning (1–199), 1 with records (200)",
        "first offset 0; end offset 1–199; records 1–199, 19,905 in all",
    ]
    assert [line.split()[0] for line in lines[3:5]] == ["201", "199"] and len(lines) == MOST_LINES
    assert printed.err.splitlines()[1] == "199 warnings, all about one partition"
    assert printed.err.endswith(not_shown(199, "warnings"))
    with pytest.raises(click.ClickException):
        show_times(admin, "t", shows_all=True, as_json=False)
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), len(printed.err.splitlines())) == (203, 199)


# --- changes -------------------------------------------------------------------------------------------


def test_elections_of_many_partitions_show_failures_first(
    run: Any, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("t", 3_000)
    outcomes: dict[int, TidelogError] = {
        1: ElectionNotNeededError("not needed"),
        2_999: PreferredLeaderNotAvailableError("broker 3 is down"),
    }
    monkeypatch.setattr(Admin, "elect_leaders", lambda self, kind, tps: {tp: outcomes.get(tp.partition) for tp in tps})
    result = run(partitions_module.elect, "t")
    summary, _, first, second, *rest = result.stdout.splitlines()
    assert summary == "3,000 elections: 1 failed (2999), 2,998 elected (0, 2–2998), 1 not needed (1)"
    assert (first.split()[0], second.split(), len(rest)) == ("2999", ["0", "1", "elected"], WORST_ROWS - 2)
    assert result.stderr.startswith(not_shown(3_000, "elections"))
    assert "1 of 3,000 elections had no effect: broker 3 is down" in result.stderr
    assert len(run(partitions_module.elect, "t", "--all").stdout.splitlines()) == 3_001


def test_many_moves_show_the_most_records_to_copy_first(capsys: pytest.CaptureFixture[str]) -> None:
    tps = [TopicPartition("t", number) for number in range(100)]
    started = [StartedChange(tp, (1, 2), (1, 3)) for tp in tps]
    lags = {tp: {3: None if tp.partition == 7 else tp.partition} for tp in tps}
    progress = {tp: Progress(tp, 1, (1, 2, 3), (1, 2), (3,), (2,), lag, {3: 1024}) for tp, lag in lags.items()}
    show_reassignment("t", (), started, progress, 2048, False)
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[:2] == ["100 changes, all in progress", "t/0: replicas 1,2 → 1,3, in progress"]
    assert lines[21] == "100 partitions: 99 with records to copy (1–99), 1 that only wait for the controller (0)"
    assert [line.split()[0] for line in lines[23:25]] == ["7", "99"] and len(lines) == 22 + 2 + WORST_ROWS
    assert lines[-1] == "still to copy: 100 KiB; each broker sends and receives at most 2 KiB/s, so at least 50 s more"
    assert printed.err == not_shown(100, "changes") + not_shown(100, "partitions")


def test_refusal_of_fewer_replicas_names_ranges_of_partitions() -> None:
    before = dict.fromkeys(range(1_000), (1, 2))
    (clause,) = lost_replicas("t", before, dict.fromkeys(range(1_000), (1,)))
    assert clause == "partitions 0–999 of t would have 1 replica instead of 2"


def test_many_deletions_of_records_show_the_largest_first(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(_PLANNED, [Deletion(number, 0, number).as_row() for number in range(100)], shows_all=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "100 partitions: 99 that lose records (1–99), 1 that keep all records (0)"
    assert lines[1] == "records to delete 0–99, 4,950 in all"
    assert lines[3].split() == ["99", "0", "99", "99"]
