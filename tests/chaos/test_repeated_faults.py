"""Test that a fault without an effect is injected again, at most twice, and judged by the last attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from tests.chaos.runner_stage import Cluster, Pretended, Run, made_in
from tests.virtual_time import on_virtual_time
from verify.chaos.fault import Fault, Target
from verify.chaos.injections import Injection, Outcome, read_faults
from verify.chaos.results.judging import window_of
from verify.chaos.results.verdict import count_rows
from verify.chaos.runner import MOST_REPEATS, format_injection
from verify.chaos.schedule import Step

AGAIN, BIT, VOID = Outcome.AGAIN, Outcome.BIT, Outcome.VOID
UNNOTICED = "nothing in the cluster noticed it"


@dataclass
class Late(Pretended):
    """A fault that first bites at the attempt `bites_at`, counted from 1; 0: never.

    `fails_at` is the attempt whose injection fails, and `draws` has one random number of each attempt.
    """

    bites_at: int = 2
    fails_at: int = 0
    draws: list[float] = field(default_factory=list)

    async def inject(self, target: Target, rng: random.Random) -> str:
        self.draws.append(rng.random())
        attempt = len(self.draws)
        self.bites = attempt == self.bites_at
        self.trouble = "broker 3 did not end after SIGKILL" if attempt == self.fails_at else ""
        return await super().inject(target, rng)


def outcomes(injections: Sequence[Injection]) -> list[Outcome]:
    return [injection.outcome for injection in injections]


@on_virtual_time
async def test_fault_that_bites_at_once_is_not_repeated(tmp_path: Path) -> None:
    fault = Late(Cluster(), bites_at=1)
    assert outcomes(await Run(tmp_path, fault.cluster, fault).go("F1")) == [BIT]
    assert fault.calls == ["injected", "healed"]


@pytest.mark.parametrize("bites_at", [2, 3])
def test_unnoticed_fault_is_repeated_until_it_bites(bites_at: int, tmp_path: Path) -> None:
    @on_virtual_time
    async def repeat() -> None:
        fault = Late(Cluster(), bites_at=bites_at)
        injections = await Run(tmp_path, fault.cluster, fault).go("F1")
        *repeated, last = injections
        assert outcomes(injections) == [AGAIN] * (bites_at - 1) + [BIT]
        assert {(each.why, each.t_bit) for each in repeated} == {(UNNOTICED, None)}
        assert last.why.startswith("epoch ")
        assert fault.calls == ["injected", "healed"] * bites_at

    repeat()


@on_virtual_time
async def test_fault_that_never_bites_is_void_after_two_repeats(tmp_path: Path) -> None:
    fault = Late(Cluster(), bites_at=0)
    injections = await Run(tmp_path, fault.cluster, fault).go("F1")
    assert MOST_REPEATS == 2
    assert outcomes(injections) == [AGAIN, AGAIN, VOID]
    assert injections[-1].why == UNNOTICED


@on_virtual_time
async def test_each_step_of_a_row_has_its_own_repeats(tmp_path: Path) -> None:
    fault = Late(Cluster(), bites_at=0)
    injections = await Run(tmp_path, fault.cluster, fault).go("F1", seconds=60)
    assert len(injections) > 6 and len(injections) % 3 == 0
    assert outcomes(injections) == [AGAIN, AGAIN, VOID] * (len(injections) // 3)


@on_virtual_time
async def test_repeats_come_before_the_next_row(tmp_path: Path) -> None:
    cluster = Cluster()
    late, other = Late(cluster), Pretended(cluster, row="F2", name="follower killed")
    injections = await Run(tmp_path, cluster, late, other).go("F1", "F2")
    assert [(each.row, each.outcome) for each in injections] == [("F1", AGAIN), ("F1", BIT), ("F2", BIT)]


@on_virtual_time
async def test_each_attempt_is_a_new_object_of_the_same_kind(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, epoch=1)
    made: list[Pretended] = []

    def make() -> Fault:
        made.append(replace(fault, bites=False, calls=[]))
        return cast(Fault, made[-1])

    run = Run(tmp_path, cluster, fault)
    other = Pretended(cluster, name="leader cut off")
    run.course.catalogue = {"F1": [make, lambda: cast(Fault, other)]}
    assert outcomes(await run.go("F1")) == [AGAIN, AGAIN, VOID]
    assert [each.calls for each in made if each.calls] == [["injected", "healed"]] * 3
    assert other.calls == []


@on_virtual_time
async def test_repeat_makes_new_random_choices_from_the_same_seed(tmp_path: Path) -> None:
    first, second = Late(Cluster(), bites_at=0), Late(Cluster(), bites_at=0)
    for fault in (first, second):
        await Run(tmp_path, fault.cluster, fault).go("F1")
    assert len(set(first.draws)) == 3
    assert first.draws == second.draws


def test_repeated_step_keeps_its_row_its_kind_and_its_number() -> None:
    step = Step(4, "F33", 1, 0.5, 700, 7)
    repeated = step.repeated()
    assert repeated == step.repeated()
    assert (repeated.number, repeated.row, repeated.kind) == (4, "F33", 1)
    assert len({each.rng_seed for each in (step, repeated, repeated.repeated())}) == 3
    assert 0 <= repeated.span <= 1 and 0 <= repeated.pause_ms <= 1_500


@on_virtual_time
async def test_failed_injection_is_not_repeated(tmp_path: Path) -> None:
    fault = Late(Cluster(), fails_at=1)
    (injection,) = await Run(tmp_path, fault.cluster, fault).go("F1", seconds=0)
    assert (injection.outcome, injection.why) == (VOID, "cannot inject the fault: broker 3 did not end after SIGKILL")


@on_virtual_time
async def test_repeat_that_cannot_be_injected_leaves_the_fault_void(tmp_path: Path) -> None:
    fault = Late(Cluster(), bites_at=3, fails_at=2)
    injections = await Run(tmp_path, fault.cluster, fault).go("F1")
    assert outcomes(injections) == [AGAIN, VOID]
    assert injections[-1].why.startswith("cannot inject the fault: ")


@on_virtual_time
async def test_repeat_without_load_leaves_the_fault_void(tmp_path: Path) -> None:
    class Quieting(Late):
        async def inject(self, target: Target, rng: random.Random) -> str:
            self.cluster.rate = 100
            return await super().inject(target, rng)

    fault = Quieting(Cluster())
    injections = await Run(tmp_path, fault.cluster, fault).go("F1")
    assert outcomes(injections) == [AGAIN, VOID]
    assert "records acknowledged in the second before the fault" in injections[-1].why


@on_virtual_time
async def test_fault_without_load_is_not_repeated(tmp_path: Path) -> None:
    fault = Late(Cluster(rate=100))
    assert outcomes(await Run(tmp_path, fault.cluster, fault).go("F1")) == [VOID]
    assert fault.calls == []


@on_virtual_time
async def test_failed_healing_is_not_repeated(tmp_path: Path) -> None:
    fault = Late(Cluster(), unhealed="no file system can be mounted here")
    (injection,) = await Run(tmp_path, fault.cluster, fault).go("F1")
    assert (injection.outcome, injection.why) == (VOID, f"cannot heal the fault: {fault.unhealed}")


@on_virtual_time
async def test_unnoticed_fault_without_a_recovery_is_not_repeated(tmp_path: Path) -> None:
    class Unmending(Late):
        async def heal(self) -> None:
            """Leave a replica outside the ISR."""

    fault = Unmending(Cluster())
    (injection,) = await Run(tmp_path, fault.cluster, fault).go("F1")
    assert (injection.outcome, injection.t_whole) == (VOID, None)


@on_virtual_time
async def test_stopped_run_does_not_repeat_a_fault(tmp_path: Path) -> None:
    fault = Late(Cluster(), lasts_ms=(600_000, 600_000))
    run = Run(tmp_path, fault.cluster, fault)
    asyncio.get_running_loop().call_later(10, run.stop.set)
    assert outcomes(await run.go("F1")) == [VOID]


@on_virtual_time
async def test_stop_before_a_repeat_leaves_the_fault_unproved(tmp_path: Path) -> None:
    class Unobserved(Late):
        async def heal(self) -> None:
            await super().heal()
            asyncio.get_running_loop().call_later(0.3, setattr, self.cluster, "visible", False)
            asyncio.get_running_loop().call_later(5, run.stop.set)

    fault = Unobserved(Cluster())
    run = Run(tmp_path, fault.cluster, fault)
    injections = await run.go("F1")
    assert outcomes(injections) == [AGAIN]
    assert count_rows(["F1"], injections)[0].void == 1


@on_virtual_time
async def test_stop_in_the_pause_before_a_repeat_injects_nothing(tmp_path: Path) -> None:
    class Stopping(Late):
        async def heal(self) -> None:
            await super().heal()
            asyncio.get_running_loop().call_later(0.3, run.stop.set)

    fault = Stopping(Cluster())
    run = Run(tmp_path, fault.cluster, fault)
    injections = await run.go("F1")
    assert (outcomes(injections), fault.calls) == ([AGAIN], ["injected", "healed"])
    assert count_rows(["F1"], injections)[0].void == 1


@on_virtual_time
async def test_bound_exceeded_by_a_repeated_attempt_is_judged(tmp_path: Path) -> None:
    class Breaking(Late):
        async def inject(self, target: Target, rng: random.Random) -> str:
            self.broke = None if self.draws else "broker 3 took 12 s to stop"
            return await super().inject(target, rng)

    fault = Breaking(Cluster())
    run = Run(tmp_path, fault.cluster, fault)
    first, last = await run.go("F1")
    assert (first.outcome, last.outcome, last.broke) == (AGAIN, BIT, "")
    windows = [window_of(injection) for injection in (first, last)]
    assert [window.broke for window in windows if window is not None] == ["broker 3 took 12 s to stop", ""]


@on_virtual_time
async def test_attempts_are_shown_and_stored_in_order(tmp_path: Path) -> None:
    fault = Late(Cluster())
    injections = await Run(tmp_path, fault.cluster, fault).go("F1")
    assert read_faults(tmp_path) == injections
    lines = [format_injection(injection) for injection in injections]
    assert lines[0].startswith(f"F1   again   SIGKILL to broker 3: {UNNOTICED}; healed after ")
    assert lines[1].startswith("F1   bit     SIGKILL to broker 3: epoch ")
