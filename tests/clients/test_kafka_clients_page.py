"""Sessions and programs of docs/KAFKA-CLIENTS.md and the README run as typed; the table names tests that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.adapters.builds import SPARK_KAFKA_VERSION
from tests.clients.adapters.foreign_client import ForeignClient
from tests.clients.adapters.kcat import needs_kcat
from tests.clients.adapters.registry import CLIENTS, NAMES

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

ROOT = Path(__file__).parents[2]
PAGE, README = (ROOT / "docs" / "KAFKA-CLIENTS.md").read_text(), (ROOT / "README.md").read_text()
PROGRAMS = dict(re.findall(r"^## (\S+)\n+```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
#: The page's address, for which the tests put the address of their own cluster.
ADDRESS = "localhost:9092"


@pytest.fixture(scope="module")
def address(servers: str) -> str:
    """Return the address of the first broker."""
    return servers.split(",")[0]


def test_page_has_a_program_for_each_library() -> None:
    assert set(PROGRAMS) == {*NAMES, "Spark"} - {"kcat"}


@needs_kcat
def test_session_of_kcat_shows_what_the_page_shows(servers: str) -> None:
    (session,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    assert len(steps) == session.count("$ ") >= 8
    for typed, shown in steps:
        command = typed.replace(ADDRESS, servers.split(",")[0]).replace("orders", "session")
        ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        assert ended.stdout == shown.replace("orders", "session"), f"{command}\n{ended.stderr}"


@needs_kcat
def test_commands_of_the_readme_write_and_read(servers: str) -> None:
    (commands,) = re.findall(r"```\n(echo hello \| kcat .*?)```", README, re.DOTALL)
    assert ADDRESS in commands
    typed = ["bash", "-e", "-c", commands.replace(ADDRESS, servers.split(",")[0])]
    ended = subprocess.run(typed, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "hello\n"), ended.stderr


def test_program_of_the_readme_writes(address: str) -> None:
    (program,) = re.findall(r"```python\n(from confluent_kafka .*?)```", README, re.DOTALL)
    assert ADDRESS in program
    typed = [sys.executable, "-c", program.replace(ADDRESS, address)]
    ended = subprocess.run(typed, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "b'hello'\n"), ended.stderr


#: Spark downloads its Kafka source from Maven Central.
SPARK = pytest.param("Spark", marks=[pytest.mark.slow, pytest.mark.timeout(600)])


@pytest.mark.parametrize("name", [*(each for each in PROGRAMS if each != "Spark"), SPARK])
def test_program_of_the_page_runs_as_typed(address: str, tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    assert ADDRESS in program
    if name == "Spark" and shutil.which("java") is None:
        pytest.skip("this machine has no java")
    ended = subprocess.run(
        [sys.executable, "-c", program.replace(ADDRESS, address)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540 if name == "Spark" else 60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"(\d+) b'key' b'value'\n\1\n", ended.stdout), ended.stdout


def test_program_of_spark_has_the_tested_version() -> None:
    assert f'"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_KAFKA_VERSION}"' in PROGRAMS["Spark"]
    assert f"`spark-sql-kafka-0-10` {SPARK_KAFKA_VERSION} in PySpark" in PAGE


def test_table_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| .* \| `(test_\w+)`(?: \(slow\))? \|$", PAGE, re.MULTILINE)
    sources = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    assert len(rows) >= 14
    assert [name for name in rows if f"def {name}(" not in sources] == []


@pytest.mark.parametrize("name", NAMES)
def test_table_claims_no_later_version_than_the_tested_one(client: Callable[[str], ForeignClient], name: str) -> None:
    (claimed,) = re.findall(rf"^\| feature .*\b{re.escape(name)} ([\d.]+) \|", PAGE, re.MULTILINE)
    assert set(NAMES) == set(CLIENTS)
    assert _numbers(claimed) <= _numbers(client(name).version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
