"""Runs the scenarios in `*.txt`: a command, `----`, and the lines that the command must print.

`REWRITE_SCENARIOS=1 pytest tests/scenarios` writes what the commands print now, so that the diff can be reviewed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.commands import Scenario

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


def run(text: str) -> str:
    """Return the scenario with the lines that its commands print now. Lines that begin with # are kept."""
    scenario = Scenario()
    blocks = []
    for block in text.rstrip("\n").split("\n\n"):
        comments = [line for line in block.splitlines() if line.startswith("#")]
        commands = [line for line in block.split("\n----")[0].splitlines() if not line.startswith("#")]
        printed = ["----", *(scenario.run(command) for command in commands)] if commands else []
        blocks.append("\n".join([*comments, *commands, *printed]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_prints_what_it_says(path: Path) -> None:
    printed = run(path.read_text())
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(printed)
    assert printed == path.read_text()


def test_there_are_many_scenarios() -> None:
    assert len(SCENARIOS) >= 15
