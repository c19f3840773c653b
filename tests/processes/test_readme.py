"""The README's Python, run as it stands there; test_readme_commands.py types its commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import Shell, a_newcomer

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with a_newcomer(tmp_path) as user:
        yield user


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
