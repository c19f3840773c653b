"""Test how a runner executes its schedule, on virtual time with fake faults."""

from __future__ import annotations

import asyncio
import random
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from tests.chaos.runner_stage import SECOND_NS, Cluster, Pretended, Run, made_in, now_ns
from tests.virtual_time import on_virtual_time
from verify.chaos.fault import Fault, Need, Target
from verify.chaos.injections import Outcome
from verify.chaos.results.judging import window_of
from verify.chaos.runner import LEAST_RATE, MOST_HEALING_S, format_injection


@on_virtual_time
async def test_fault_is_injected_lasts_is_healed_and_bites(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    (injection,) = await Run(tmp_path, cluster, fault).go("F1")
    assert (injection.outcome, injection.why, injection.what) == (Outcome.BIT, "epoch 1 → 2", "SIGKILL to broker 3")
    assert injection.t_inject is not None and injection.t_heal is not None and injection.t_bit is not None
    assert injection.t_heal - injection.t_inject == pytest.approx(3 * SECOND_NS, rel=0.05)
    assert injection.t_inject < injection.t_bit <= injection.t_heal
    assert injection.acknowledged == pytest.approx(1_500, rel=0.1)
    assert fault.calls == ["injected", "healed"]


@on_virtual_time
async def test_leaders_are_spread_before_each_fault(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    run = Run(tmp_path, cluster, fault)
    injections = await run.go("F1", seconds=10)
    assert len(run.spread_at) == len(injections) > 1
    for at, injection in zip(run.spread_at, injections, strict=True):
        assert injection.t_inject is not None and at <= injection.t_inject


@on_virtual_time
async def test_fault_may_cost_more_while_leaders_are_moved(
    tmp_path: Path,
) -> None:
    cluster, fault = made_in(tmp_path)
    (alone,) = await Run(tmp_path, cluster, fault).go("F1")
    (moved,) = await Run(tmp_path, cluster, fault, moved_ms=1_500).go("F1")
    assert moved.t_inject is not None and moved.t_heal is not None
    assert alone.most_gap_ms == 6_000
    assert moved.most_gap_ms == 6_000 + (moved.t_heal - moved.t_inject) // 1_000_000 + 1_500


@on_virtual_time
async def test_fault_without_an_effect_is_void(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    fault.bites = False
    *_, injection = await Run(tmp_path, cluster, fault).go("F1")
    assert (injection.outcome, injection.t_bit) == (Outcome.VOID, None)
    assert injection.why == "nothing in the cluster noticed it"


@on_virtual_time
async def test_exceeded_bound_is_reported_even_for_a_void_fault(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    fault.broke = "broker 3 took 12 s to stop"
    (injection,) = await Run(tmp_path, cluster, fault).go("F1")
    assert (injection.outcome, injection.broke) == (Outcome.BIT, fault.broke)
    assert f"BROKEN: {fault.broke}" in format_injection(injection)
    fault.bites = False
    *_, injection = await Run(tmp_path, cluster, fault).go("F1")
    assert (injection.outcome, injection.broke) == (Outcome.VOID, fault.broke)


@on_virtual_time
async def test_fault_without_load_is_void_after_a_wait(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, rate=LEAST_RATE - 20)
    (injection,) = await Run(tmp_path, cluster, fault).go("F1")
    assert injection.outcome is Outcome.VOID
    assert "records acknowledged in the second before the fault, 200 are needed" in injection.why
    assert injection.t_inject is None
    assert fault.calls == []


@on_virtual_time
async def test_fault_waits_for_late_load(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, rate=0)
    asyncio.get_running_loop().call_later(20, setattr, cluster, "rate", 500)
    (injection,) = await Run(tmp_path, cluster, fault).go("F1")
    assert injection.outcome is Outcome.BIT


@on_virtual_time
async def test_fault_is_void_if_the_cluster_cannot_be_observed(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, visible=False)
    (injection,) = await Run(tmp_path, cluster, fault).go("F1")
    assert (injection.outcome, injection.why) == (
        Outcome.VOID,
        "cannot observe the cluster before the fault: no server answers",
    )
    assert fault.calls == []


@on_virtual_time
async def test_fault_with_an_unmet_need_is_skipped_with_the_reason(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, lacking={Need.PROCESSES: "needs root"})
    (injection,) = await Run(tmp_path, cluster, fault).go("F1")
    assert (injection.outcome, injection.why, injection.name) == (Outcome.SKIPPED, "needs root", "leader killed")


@on_virtual_time
async def test_row_without_an_implemented_fault_is_skipped(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    first, second = await Run(tmp_path, cluster, fault).go("F42", "F1")
    assert (first.outcome, second.outcome) == (Outcome.SKIPPED, Outcome.BIT)
    assert first.why == "no fault is implemented for this row"


@on_virtual_time
async def test_possible_kind_is_injected_in_place_of_an_impossible_one(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, lacking={Need.NETWORK: "needs root"})
    other = Pretended(cluster, name="leader cut off", needs=frozenset({Need.NETWORK}))
    run = Run(tmp_path, cluster, fault)
    run.course.catalogue = {"F1": [lambda: cast(Fault, other), lambda: cast(Fault, fault)]}
    left_out, *injections = await run.go("F1", seconds=20)
    assert {injection.outcome for injection in injections} == {Outcome.BIT}
    assert other.calls == []
    assert (left_out.outcome, left_out.name, left_out.why) == (Outcome.SKIPPED, "leader cut off", "needs root")


@on_virtual_time
async def test_every_impossible_kind_of_a_row_is_reported(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path, lacking={Need.PROCESSES: "not ours", Need.NETWORK: "needs root"})
    other = Pretended(cluster, name="leader cut off", needs=frozenset({Need.NETWORK}))
    run = Run(tmp_path, cluster, fault)
    run.course.catalogue = {"F1": [lambda: cast(Fault, fault), lambda: cast(Fault, other)]}
    reports = [(each.name, each.outcome, each.why) for each in await run.go("F1")]
    skipped = Outcome.SKIPPED
    assert reports == [("leader killed", skipped, "not ours"), ("leader cut off", skipped, "needs root")]


@on_virtual_time
async def test_failed_injection_is_healed_and_void(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    fault.trouble = "broker 3 did not end after SIGKILL"
    (injection,) = await Run(tmp_path, cluster, fault).go("F1", seconds=0)
    assert injection.outcome is Outcome.VOID
    assert injection.why == "cannot inject the fault: broker 3 did not end after SIGKILL"
    window = window_of(injection)
    assert window is not None and window.least_operations == 0, "nothing lasted in which operations could succeed"
    assert fault.calls == ["injected", "healed"]


@on_virtual_time
async def test_failed_healing_ends_the_run(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    fault.unhealed = "no file system can be mounted here"
    injections = await Run(tmp_path, cluster, fault).go("F1", "F1", "F1")
    assert [injection.why for injection in injections] == ["cannot heal the fault: no file system can be mounted here"]


@on_virtual_time
async def test_partitions_that_do_not_recover_end_the_run(tmp_path: Path) -> None:
    class Unmending(Pretended):
        async def heal(self) -> None:
            self.calls.append("healed")

    cluster = Cluster()
    run = Run(tmp_path, cluster, Unmending(cluster))
    began = now_ns()
    (injection,) = await run.go("F1", "F1")
    assert injection.t_whole is None
    assert now_ns() - began > MOST_HEALING_S * SECOND_NS


@on_virtual_time
async def test_fault_ends_when_clients_are_served_on_all_partitions(tmp_path: Path) -> None:
    class Lasting(Pretended):
        async def heal(self) -> None:
            await super().heal()
            self.cluster.rate = 0
            asyncio.get_running_loop().call_later(5, setattr, self.cluster, "rate", 500)

    cluster = Cluster()
    (injection,) = await Run(tmp_path, cluster, Lasting(cluster)).go("F1")
    assert injection.t_whole is not None and injection.t_heal is not None
    assert 5 * SECOND_NS <= injection.t_whole - injection.t_heal < 6 * SECOND_NS


@on_virtual_time
async def test_each_row_is_injected_once_and_then_until_the_time_limit(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    other = Pretended(cluster, row="F2", name="follower killed")
    assert len(await Run(tmp_path, cluster, fault, other).go("F1", "F2", seconds=1)) == 2
    assert len(await Run(tmp_path, cluster, fault, other).go("F1", "F2", seconds=60)) > 10


@on_virtual_time
async def test_stopped_run_heals_and_evaluates_the_current_fault(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    fault.lasts_ms = (600_000, 600_000)
    run = Run(tmp_path, cluster, fault)
    asyncio.get_running_loop().call_later(10, run.stop.set)
    began = now_ns()
    (injection,) = await run.go("F1", "F1")
    assert injection.outcome is Outcome.BIT
    assert fault.calls == ["injected", "healed"]
    assert now_ns() - began < 15 * SECOND_NS


@on_virtual_time
async def test_stopped_run_does_not_wait_for_an_injection(tmp_path: Path) -> None:
    class Slow(Pretended):
        async def inject(self, target: Target, rng: random.Random) -> str:
            self.calls.append("injected")
            await asyncio.sleep(3_600)
            return "never"

    cluster = Cluster()
    fault = Slow(cluster)
    run = Run(tmp_path, cluster, fault)
    asyncio.get_running_loop().call_later(10, run.stop.set)
    (injection,) = await run.go("F1")
    assert (injection.outcome, injection.why) == (Outcome.VOID, "cannot inject the fault: the run was stopped")
    assert fault.calls == ["injected", "healed"]


@on_virtual_time
async def test_every_wait_has_a_time_limit(tmp_path: Path) -> None:
    class Stuck(Pretended):
        async def inject(self, target: Target, rng: random.Random) -> str:
            await asyncio.Event().wait()
            return "never"

        async def heal(self) -> None:
            await asyncio.Event().wait()

    cluster = Cluster()
    (injection,) = await Run(tmp_path, cluster, Stuck(cluster)).go("F1", "F1")
    assert injection.outcome is Outcome.VOID
    assert list(islice(injection.why.split(), 4)) == ["cannot", "inject", "the", "fault:"]


@on_virtual_time
async def test_faults_file_has_a_line_for_each_injection(tmp_path: Path) -> None:
    cluster, fault = made_in(tmp_path)
    await Run(tmp_path, cluster, fault).go("F1", "F42", seconds=0)
    lines = (tmp_path / "faults.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"outcome": "skipped"' in lines[0] and '"outcome": "bit"' in lines[1]
