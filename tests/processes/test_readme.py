"""The README's quick start, typed as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell, a_newcomer

ROOT = Path(__file__).parent.parent.parent
#: They tell how things are by their status, and a reassignment may be under way just then.
TELLS_BY_STATUS = ("tidelog explain", "tidelog doctor")
#: They say on standard error what was written, where partitions start elsewhere, and that nothing is changed yet.
TELLS_ON_STDERR = (
    "tidelog produce",
    "tidelog consume lines --from -1h",
    "tidelog group reset",
    "tidelog topic delete-records",
)


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
        told = ended.stderr.decode().splitlines()
        assert not told or typed.startswith(TELLS_ON_STDERR), f"{line}: {told}"


def test_a_group_goes_on_from_a_point_in_time_as_the_readme_shows_it(shell: Shell) -> None:
    (example,) = (block for block in _python_blocks() if "consumer.subscribe" in block)
    assert shell.run("up", "--detach").status == 0
    assert shell.run("topic", "create", "lines", "--partitions", "2").status == 0
    assert shell.run("produce", "lines", "--partition", "0", given=b"a\nb\n").status == 0
    servers = json.loads(shell.run("status", "--json").output)["bootstrap_servers"]
    ended = subprocess.run(
        [sys.executable, "-c", example.replace("localhost:9092", servers)],
        cwd=shell.directory,
        capture_output=True,
        timeout=120,
        check=True,
    )
    starts = {line.split()[-1] for line in ended.stdout.decode().splitlines()}
    assert starts == {"before_log_start", "empty"}, ended.stdout
    described = json.loads(shell.run("group", "describe", "billing", "--json").output)
    assert [part["lag"] for part in described["partitions"]] == [0, 0]


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
