"""Lists the steps that `.ci/run` has no time for. Each step is one command of scripts/, as a user would type it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One command and how its end is judged.

    about      what the step does, for people
    command    the script in scripts/, with its arguments
    minutes    the time on two cores
    unproved   exit statuses that mean that no fault was found, but not everything was checked
    as_root    whether the step proves too little without root to be started
    """

    name: str
    about: str
    command: Sequence[str]
    minutes: int
    unproved: Sequence[int] = ()
    as_root: bool = False


def all_steps(reports: Path, seed: int, jobs: int) -> list[Step]:
    """Return all steps in their order.

    reports   the directory in which chaos makes its reports
    seed      the seed of the chaos steps that have no fixed one
    jobs      the number of processes of the simulator
    """
    return [
        Step("slow-tests", "the long tests", ("test", "--slow"), 80),
        Step(
            "checker",
            "the checker judges a million writes in ten seconds",
            ("bench", "checker", "--runs", "1", "--aims"),
            1,
        ),
        *(_everything(name, number, reports) for name, number in (("1", 1), ("2", 2), ("3", 3), ("clock", seed))),
        _regressions("leader-kill", 1, seed, reports),
        _regressions("partition", 6, seed, reports),
        # This step comes before those that may write files, because bugs are planted into a clean checkout.
        Step(
            "mutants",
            "bugs planted one at a time, found by tests, and by simulator and chaos where the patch names them",
            ("mutants", "--by", "suite", "--by", "simulator", "--by", "chaos"),
            14,
            unproved=(2,),
        ),
        Step(
            "seeds",
            "10,000 simulated clusters of a minute each",
            ("simulate", "--seeds", "10000", "--jobs", str(jobs), "--keep-going"),
            108,
            unproved=(3,),
        ),
        Step("fuzz", "a million hostile inputs for each reader", ("fuzz", "--cases", "1000000"), 310),
    ]


def _everything(name: str, seed: int, reports: Path) -> Step:
    return _chaos(
        f"chaos-{name}", f"a fault of every row for ten minutes, seed {seed}", 12, reports,
        "--scenario", "all", "--seconds", "600", "--seed", str(seed),
    )  # fmt: skip


def _regressions(scenario: str, minutes: int, seed: int, reports: Path) -> Step:
    return _chaos(
        scenario, f"{scenario} with Kafka clients while leaders and replicas move, seed {seed}", minutes, reports,
        "--scenario", scenario, "--seed", str(seed), "--meanwhile", "elections", "--meanwhile", "reassignments",
        "--kafka-clients", "1",
    )  # fmt: skip


def _chaos(name: str, about: str, minutes: int, reports: Path, *arguments: str) -> Step:
    command = ("chaos", *arguments, "--report", str(reports / name))
    # Kills need no rights over networks and disks.
    return Step(name, about, command, minutes, unproved=(3,), as_root="leader-kill" not in command)
