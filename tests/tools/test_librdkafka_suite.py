"""The runner of librdkafka's test suite, with a suite that is a shell script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.librdkafka_suite.__main__ import main
from tools.librdkafka_suite.suite import Result, Suite, failed_here_only, read_log, read_results

TABLE = """
#define _TEST(...)
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0001_first, 0, _THRES(.ucpu = 40.0, .scpu = 8.0)),
    _TEST(0002_local, TEST_F_LOCAL, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0003_two, 0), _TEST(0003_two_more, 0),
    _TEST(0004_manual, TEST_F_MANUAL),
    _TEST(0005_named, 0, TEST_BRKVER(0, 11, 0, 0), .scenario = "default,ak23"),
    _TEST(0006_off, 0, .scenario = "noautocreate"),
};
"""
RUNNER = r"""#!/bin/sh
echo "$TESTS" >> ran
grep -q metadata.broker.list=somewhere:9092 "$RDKAFKA_TEST_CONF" || exit 1
printf '\033[36m[<MAIN>     /  0.000s] Setting test timeout\n'
printf '[%s_x  /  1.500s] \033[32m[ a_part:12: PASS (0.41s) ]\n' $TESTS
case $TESTS in
0003) printf '### Test "0003_two (a_part:12)" failed at 0003.c:7 at Fri: ###\nTest assertion failed: "it": no\n' ;;
0005) printf '[0005_named     /  0.000s] WARN: SKIPPING TEST: no SASL\n' ;;
*) printf '\033[36m[%s_x  /  2.500s] ================= Test %s_x PASSED =================\033[0m\n' $TESTS $TESTS ;;
esac
printf '### Test "<MAIN>" failed at test.c:1 at Fri: ###\n5 thread(s) still active\n'
kill -ABRT $$
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tests = tmp_path / "librdkafka" / "tests"
    tests.mkdir(parents=True)
    (tests / "test.c").write_text(TABLE)
    (tests / "test-runner").write_text(RUNNER)
    (tests / "test-runner").chmod(0o755)
    return tests.parent


def test_tests_that_need_brokers_are_chosen_by_scenario(directory: Path) -> None:
    assert Suite(directory, "s").numbers() == ["0001", "0003", "0005"]
    assert Suite(directory, "s", "noautocreate").numbers() == ["0006"]


def test_test_that_crashes_before_its_end_has_failed() -> None:
    assert read_log("0001", "[0001_first / 3.000s] Segmentation fault").has_failed
    assert not read_log("0001", "= Test 0001_first PASSED =\nfree(): invalid pointer").has_failed


def run_in(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, results: str = "results"
) -> int:
    given = ["--bootstrap-servers", "somewhere:9092", "--results", str(tmp_path / results), *arguments]
    monkeypatch.setattr("sys.argv", ["x", str(directory), *given])
    return main()


def test_run_continues_where_it_was_stopped(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_in(tmp_path, directory, monkeypatch, "--minutes", "0") == 3
    assert run_in(tmp_path, directory, monkeypatch, "0001") == 0
    assert run_in(tmp_path, directory, monkeypatch) == 1
    assert (directory / "tests" / "ran").read_text().split() == ["0001", "0003", "0005"]
    assert capsys.readouterr().out.endswith("failed: 0003\n")
    results = read_results(tmp_path / "results")
    assert results["0001"] == Result(test="0001", seconds=2.5, states={"0001_x": "PASSED"}, subtests=1)
    assert results["0005"].states == {"0005_named": "SKIPPED"}
    (failure,) = results["0003"].failures
    assert failure.endswith('### Test assertion failed: "it": no')


def test_test_that_fails_in_the_control_does_not_count(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_in(tmp_path, directory, monkeypatch, results="kafka") == 1
    assert run_in(tmp_path, directory, monkeypatch, "--control", str(tmp_path / "kafka")) == 0
    failed = Result(test="0009", seconds=1.0)
    assert failed_here_only([failed], read_results(tmp_path / "kafka")) == [failed], "the control did not run it"
