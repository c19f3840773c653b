"""Test that `tidelog chaos` refuses wrong options with one line and a status before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.program import run
from tidelog.errors import LocalError
from verify.chaos.commands import chaos
from verify.chaos.commands.chaos_lines import show
from verify.chaos.load import Load
from verify.chaos.run import Request, Result
from verify.chaos.scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDELOG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--scenario", "earthquake"], 2, "'earthquake' is not one of 'leader-kill', 'rolling', 'partition'"),
        (["--scenario", "rolling", "--only", "F1"], 2, "--only: scenario rolling has no row 'F1': it has F11, F13"),
        (["--only", ""], 2, "--only: scenario all has no row '': it has F1, F2"),
        (["--only", "F1,F56"], 2, "scenario all has no row 'F56'"),
        (["--seconds", "0"], 2, "0.0 is not in the range"),
        (["--seconds", "nan"], 2, "not a number"),
        (["--seconds", "1e9"], 2, "not in the range"),
        (["--seed", "-1"], 2, "not in the range"),
        (["--seed", "one"], 2, "'one' is not a valid integer"),
        (["--rate", "249"], 2, "249 is not in the range"),
        (["--brokers", "2"], 2, "2 is not in the range"),
        (["--bootstrap-servers", "127.0.0.1:1", "--brokers", "3"], 2, "--brokers is for a cluster that is started"),
        (["--bootstrap-servers", "nonsense"], 2, "--bootstrap-servers"),
        (
            ["--bootstrap-servers", "127.0.0.1:1"],
            2,
            "injects faults into the cluster at 127.0.0.1:1: pass --yes to confirm",
        ),
        (["--kafka-clients", "17"], 2, "17 is not in the range"),
        (["--idle-partitions", "-1"], 2, "-1 is not in the range"),
        (["--idle-partitions", "10001"], 2, "10001 is not in the range"),
        (["--idle-partitions", "many"], 2, "'many' is not a valid integer"),
        (["--meanwhile", "rain"], 2, "'rain' is not one of 'elections', 'reassignments'"),
        (["surprise"], 2, "surprise"),
    ],
)
def test_wrong_option_is_refused_in_one_line(
    arguments: list[str], status: int, message: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["chaos", *arguments]) == status
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1 and shown.out == ""
    assert not (home / "chaos").exists()


def test_kafka_clients_need_confluent_kafka(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["chaos", "--kafka-clients", "1"]) == 2
    shown = capsys.readouterr().err
    assert "--kafka-clients needs confluent-kafka, which is not installed: pip install confluent-kafka" in shown
    assert not (home / "chaos").exists()


def test_command_that_repeats_a_run_names_its_kafka_clients(capsys: pytest.CaptureFixture[str]) -> None:
    for count, text in ((2, " --kafka-clients 2 "), (0, "")):
        request = Request(SCENARIOS["all"], ("F1",), 7, 30.0, Load(kafka_processes=count))
        show(Result((), None, (), Path()), request, kept=False, as_json=False)
        (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("to repeat this run")]
        assert text in line and ("--kafka-clients" in line) == bool(count)


def test_idle_partitions_are_part_of_the_requested_load(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    async def take(request: Request, *_: object) -> Result:
        requests.append(request)
        raise LocalError("the run ends here")

    monkeypatch.setattr(chaos, "run", take)
    assert run(["chaos", "--idle-partitions", "3000"]) == 1
    assert run(["chaos"]) == 1
    assert [request.load.idle_partitions for request in requests] == [3000, 0]


def test_command_that_repeats_a_run_names_its_idle_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    for count, text in ((3000, " --idle-partitions 3000 "), (0, "")):
        request = Request(SCENARIOS["all"], ("F1",), 7, 30.0, Load(idle_partitions=count))
        show(Result((), None, (), Path()), request, kept=False, as_json=False)
        (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("to repeat this run")]
        assert text in line and ("--idle-partitions" in line) == bool(count)


def test_report_requires_an_empty_directory(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").touch()
    assert run(["chaos", "--report", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_unwritable_report_is_refused_before_the_start(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(["chaos", "--report", str(tmp_path / "file" / "report")]) == 2
    shown = capsys.readouterr().err
    assert f"--report: {tmp_path / 'file' / 'report'}: Not a directory" in shown and len(shown.splitlines()) == 1
    assert not (home / "chaos").exists()


def test_report_without_write_permission_is_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path / "report")  # root may write everywhere
    assert run(["chaos", "--report", str(tmp_path / "report")]) == 2
    assert f"--report: {tmp_path / 'report'} is not writable" in capsys.readouterr().err
    assert not (home / "chaos").exists()


def test_running_cluster_is_broken_only_with_yes(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidelog.local.home import remember_last_up
    from tidelog.local.state import BrokerState, ClusterState, save_state

    home.mkdir()
    save_state(home, ClusterState("127.0.0.1:2", None, (BrokerState(4711, broker_id=1),), {}))
    remember_last_up(home, home)
    assert run(["chaos", "--bootstrap-servers", "localhost:4711"]) == 2
    assert f"this command injects faults into the cluster in {home}: pass --yes" in capsys.readouterr().err


def test_help_has_a_line_for_each_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = lines.index("  Exit status:")
    assert [line.split()[0] for line in lines[begin + 1 : begin + 5]] == ["0", "1", "2", "3"]
    assert not any("\\b" in line for line in lines)


def test_help_names_every_scenario_and_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name in SCENARIOS:
        assert f"{name}:" in shown
    assert "[default: start a cluster for the run]" in shown
    for status in ("0 every fault bit", "1 a promise was broken", "2 the command line was wrong", "3 no promise was"):
        assert status in shown
