"""The Python examples of README and of the guide, run as they stand; test_readme_commands.py types the commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell, a_newcomer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
README, GUIDE = (ROOT / "README.md").read_text(), (ROOT / "docs" / "GUIDE.md").read_text()
PYTHON = (ROOT / "docs" / "PYTHON.md").read_text()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with a_newcomer(tmp_path) as user:
        yield user


@pytest.mark.timeout(600)  # Spark alone takes half a minute to start on two busy cores, and minutes on slow ones
def test_python_examples_run_as_typed_after_the_quick_start(shell: Shell) -> None:
    shell.succeed("up", "--detach")
    shell.succeed("topic", "create", "lines", "--partitions", "6")
    shell.succeed("produce", "lines", given=README.encode())
    first_steps, sent, all_records, group, columns, spark = map(partial(run_example, shell), python_blocks())
    assert re.search(r"^\d+ \d+ b'value'$", first_steps, re.MULTILINE), first_steps

    first, *rows, begins = sent.splitlines()
    place = re.fullmatch(r"RecordMetadata\(topic='lines', partition=(\d+), offset=(\d+), timestamp=(\d+)\)", first)
    assert place, first
    partition, offset, timestamp = place.groups()
    assert rows[-1] == f"{offset} {timestamp} b'value'" and len(rows) > 1
    assert begins == f"{{TopicPartition(topic='lines', partition={partition}): {offset}}}"

    left = len(README.splitlines()) + 2 - int(offset)
    assert all_records == f"{left} records in 6 partitions\n"

    starts = re.findall(r"^lines-\d+ \d+ (before_log_start|empty)$", group, re.MULTILINE)
    assert len(starts) == 6 and re.search(r"^lines-\d+ \d+ records$", group, re.MULTILINE), group
    described = json.loads(shell.run("group", "describe", "billing", "--json").output)
    assert any(part["committed_offset"] for part in described["partitions"]), described

    assert "shape: (3, 6)" in columns and "max(" in columns, columns

    assert re.search(r"\|partition\|offset\| +value\|", spark) and re.search(r"\| +\d\| +\d+\|", spark), spark


def test_program_of_the_python_page_runs_as_typed(shell: Shell) -> None:
    shell.succeed("up", "--detach", "--brokers", "1")
    (example,) = re.findall(r"```python\n(.*?)```", PYTHON, re.DOTALL)
    assert run_example(shell, example) == "0 kitchen {'degrees': 21}\n"


def run_example(shell: Shell, example: str) -> str:
    """Run a block as it stands, as a program of its own; return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", example],
        cwd=shell.directory,
        env=shell.environment({"PATH": f"{TIDELOG.parent}{os.pathsep}{os.environ['PATH']}"}),  # Spark starts python3
        capture_output=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def python_blocks() -> list[str]:
    """Return the examples without those for port 9092, which tests/clients/test_kafka_clients_page.py runs."""
    blocks = re.findall(r"```python\n(.*?)```", README + GUIDE, re.DOTALL)
    return [block for block in blocks if "localhost:9092" not in block]
