"""The README's quick start, typed as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell, a_newcomer

ROOT = Path(__file__).parent.parent.parent
#: They tell how things are by their status, and a reassignment may be under way just then.
TELLS_BY_STATUS = ("tidelog explain", "tidelog doctor")


def quick_start() -> list[str]:
    (block,) = re.findall(r"## Quick start\n+```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    typed = (re.sub(r"\s{2,}#.*", "", line) for line in block.splitlines())
    return [part for line in typed if line.startswith("tidelog") for part in re.split(r";\s*", line)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with a_newcomer(tmp_path) as user:
        yield user


def test_every_line_of_the_quick_start_works_in_its_order(shell: Shell) -> None:
    environment = shell.environment({"PATH": f"{TIDELOG.parent}{os.pathsep}{os.environ['PATH']}"})
    (shell.directory / "README.md").write_bytes((ROOT / "README.md").read_bytes())
    lines = quick_start()
    assert len(lines) > 15
    for line in lines:
        typed = line.removesuffix(" --follow")
        ended = subprocess.run(
            typed, shell=True, env=environment, cwd=shell.directory, capture_output=True, timeout=120, check=False
        )
        assert ended.returncode == 0 or typed.startswith(TELLS_BY_STATUS), f"{line}: {ended.stderr.decode()}"
        assert ended.stderr == b"", line
