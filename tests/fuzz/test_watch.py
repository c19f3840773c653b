"""The fuzzer reports a wrong input, a crash, a hang and memory growth, and stores the input."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tools.fuzz import corpus, watch
from tools.fuzz.__main__ import summary
from tools.fuzz.mutations import mutations
from tools.fuzz.targets.target import Target
from tools.fuzz.watch import Ending, InputTimer, Limits, Outcome, fuzz
from tools.fuzz.worker import MUTATIONS, engines

#: A worker that knows one target of this test. argv[1] says what happens to its inputs.
WORKER = """
import sys, time
from tools.fuzz import catalogue
from tools.fuzz import worker
from tools.fuzz.targets.target import Target, check
from tests.fuzz.test_watch import SEEDS, TROUBLES
catalogue.TARGETS = {sys.argv[1]: Target(sys.argv[1], "", TROUBLES[sys.argv[1]], lambda: SEEDS)}
sys.exit(worker.main())
"""
SEEDS = [b"first", b"second"]
_hoard: list[bytes] = []


def _wrong(data: bytes) -> None:
    if data == SEEDS[1]:
        raise KeyError("unexpected input")


def _hang(data: bytes) -> None:
    if data == SEEDS[1]:
        time.sleep(600)


def _spin(data: bytes) -> None:
    while data == SEEDS[1]:
        pass


def _slow(data: bytes) -> None:
    if data == SEEDS[1] and not _hoard:
        _hoard.append(data)
        time.sleep(2.1)


def _crash(data: bytes) -> None:
    if data == SEEDS[1]:
        os.abort()


def _grow(data: bytes) -> None:
    _hoard.append(bytes(1 << 20))


TROUBLES = {
    "wrong": _wrong,
    "hang": _hang,
    "spin": _spin,
    "slow": _slow,
    "crash": _crash,
    "growth": _grow,
    "none": lambda data: None,
}


@pytest.fixture(autouse=True)
def _worker_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setattr(corpus, "CORPUS", tmp_path / "corpus")
    monkeypatch.setattr(watch, "WORKER", ["-P", str(tmp_path / "worker.py")])
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def outcome_of(
    trouble: str,
    cases: int = 100,
    limits: Limits = Limits(),  # noqa: B008
    engine: str = MUTATIONS,
) -> Outcome:
    return fuzz(Target(trouble, "", TROUBLES[trouble], lambda: SEEDS), engine, cases, 1, limits)


def test_run_without_a_finding_reports_the_number_of_inputs() -> None:
    outcome = outcome_of("none", 3000)
    assert (outcome.ending, outcome.cases, outcome.kept) == (Ending.DONE, 3000, None)
    assert "nothing found" in summary(outcome)


def test_input_that_raises_is_kept_with_its_traceback() -> None:
    outcome = outcome_of("wrong")
    assert (outcome.ending, outcome.cases) == (Ending.WRONG, 2)
    assert outcome.kept is not None and outcome.kept.read_bytes() == SEEDS[1]
    assert "unexpected input" in outcome.traceback


def test_input_that_kills_the_interpreter_is_kept() -> None:
    outcome = outcome_of("crash")
    assert (outcome.ending, outcome.cases) == (Ending.CRASH, 2)
    assert outcome.kept is not None and outcome.kept.read_bytes() == SEEDS[1]


@pytest.mark.parametrize("trouble", ["hang", "spin"])
def test_hang_is_distinguished_from_slow_inputs(trouble: str) -> None:
    outcome = outcome_of(trouble, limits=Limits(case_s=1.0))
    assert (outcome.ending, outcome.cases) == (Ending.HANG, 2)
    assert outcome.kept is not None and outcome.kept.read_bytes() == SEEDS[1]
    assert f"_{trouble}" in outcome.traceback


@pytest.mark.parametrize("engine", engines())
def test_time_limit_of_an_input_is_the_watcher_s_for_each_engine(engine: str) -> None:
    outcome = outcome_of("slow", cases=10, engine=engine)
    assert outcome.ending is Ending.DONE, outcome.traceback
    assert outcome.cases >= 10


def test_input_that_waits_for_a_processor_does_not_hang() -> None:
    silence = InputTimer(0.0)
    assert silence.seconds(60.0, 7, runnable=True, busy_s=0.1) == 0
    assert silence.seconds(120.0, 7, runnable=True, busy_s=0.2) == pytest.approx(0.1), "a minute of others"
    assert silence.seconds(121.0, 7, runnable=True, busy_s=1.2) == pytest.approx(1.1), "it has the processor"
    assert silence.seconds(123.0, 7, runnable=False, busy_s=1.2) == pytest.approx(3.1), "it sleeps"
    assert silence.seconds(124.0, 8, runnable=False, busy_s=1.3) == 0


@pytest.mark.parametrize("engine", engines())
def test_memory_that_is_kept_counts_as_growth(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_WARM_UP", 10)
    monkeypatch.setattr(watch, "_EVERY_S", 0.005)
    outcome = outcome_of("growth", 20_000, Limits(growth_bytes=2 << 20), engine)
    assert outcome.ending is Ending.GROWTH
    assert outcome.growth_bytes > 2 << 20
    assert engine == MUTATIONS or outcome.cases > 20_000, "the traces of the engine hide the growth"


def test_same_seed_gives_the_same_inputs() -> None:
    first, again, other = (mutations(seed, SEEDS) for seed in (7, 7, 8))
    taken = [[next(each) for _ in range(200)] for each in (first, again, other)]
    assert taken[0] == taken[1] != taken[2]
    assert max(map(len, taken[0])) <= corpus.MOST_BYTES
