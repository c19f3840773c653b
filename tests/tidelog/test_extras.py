"""Test that each use whose packages are missing fails with one line that has the pip command.

A package is hidden by `sys.modules[name] = None`, with which every import of it raises ModuleNotFoundError.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tidelog.errors import LocalError, MissingExtraError
from tidelog.extras import NEEDED, missing, require
from tidelog.local.zookeeper import find_jars

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_USERS = ("cli", "broker", "local", "arrow", "spark")

BROKER = sorted(NEEDED["broker"])
EVERYTHING = sorted({"rich"}.union(*NEEDED.values()))
CLICK = "click, which is not installed: pip install"
FOUR = "kazoo, orjson, prometheus_client and pyzmq, which are not installed: pip install"
#: The modules of tidelog that need an extra.
OF_EXTRAS = ("tidelog.arrow", "tidelog.cli", "tidelog.history", "tidelog.records.columns", "tidelog.spark")

COMMAND_LINE = "from tidelog.cli import main; main()"
MODULE = "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__')"


def run_without(
    modules: Iterable[str], program: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the program in a new process that cannot import these modules."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({[*modules]}))\n"
    return subprocess.run(
        [sys.executable, "-P", "-c", hide + program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("hidden", "program", "arguments", "line"),
    [
        (["click"], COMMAND_LINE, "topic list", f"tidelog: the command line needs {CLICK} 'tidelog[cli]'"),
        (["click"], COMMAND_LINE, "--version", f"tidelog: the command line needs {CLICK} 'tidelog[cli]'"),
        (BROKER, COMMAND_LINE, "up --zookeeper 127.0.0.1:1", f"tidelog: a local cluster needs {FOUR} 'tidelog[local]'"),
        (BROKER, COMMAND_LINE, "chaos --only F1", f"tidelog: tidelog chaos needs {FOUR} 'tidelog[local]'"),
        (BROKER, COMMAND_LINE, "chaos check .", f"tidelog: tidelog chaos needs {FOUR} 'tidelog[local]'"),
        (BROKER, MODULE, "node --config b.toml", f"broker: a broker needs {FOUR} 'tidelog[broker]'"),
        (BROKER, MODULE, "node --help", f"broker: a broker needs {FOUR} 'tidelog[broker]'"),
        (BROKER, MODULE, "verify.checker .", f"the checker needs {FOUR} 'tidelog[local]'"),
        (BROKER, MODULE, "verify.simulation", f"scripts/simulate: the simulator needs {FOUR} 'tidelog[local]'"),
    ],
    ids=["click", "version", "up", "chaos", "chaos-check", "broker", "broker-help", "checker", "simulator"],
)
def test_use_without_its_packages_prints_one_line(
    hidden: list[str], program: str, arguments: str, line: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    done = run_without(hidden, program, *arguments.split(), TIDELOG_HOME=str(home))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{line}\n")
    assert not home.exists()


def test_spark_source_without_its_packages_is_registered_and_says_so() -> None:
    program = "from pyspark_tidelog import DefaultSource as source; print(source.name(), flush=True); source({})"
    done = run_without(["numpy", "pyarrow"], program)
    assert (done.returncode, done.stdout) == (1, "tidelog\n")
    assert done.stderr.splitlines()[-1] == (
        "tidelog.errors.MissingExtraError: the format tidelog needs numpy and pyarrow, which are not installed: "
        "pip install 'tidelog[spark]'"
    )


def test_commands_without_their_packages_are_listed_and_completed() -> None:
    listed = run_without(BROKER, COMMAND_LINE, "--help")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert re.search(r"^  chaos +Not installed: pip install 'tidelog\[local\]'$", listed.stdout, re.MULTILINE)
    assert re.search(r"^  dump +Show the contents of log files", listed.stdout, re.MULTILINE)
    completing = {"_TIDELOG_COMPLETE": "bash_complete", "COMP_WORDS": "tidelog ch", "COMP_CWORD": "1"}
    completed = run_without(BROKER, COMMAND_LINE, **completing)
    assert (completed.stdout, completed.stderr) == ("plain,chaos\n", "")


@pytest.mark.parametrize("extra", NEEDED)
def test_each_missing_package_is_named_as_pip_names_it(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(extra, "this") == ""
    for module, package in NEEDED[extra].items():
        with monkeypatch.context() as hidden, pytest.raises(MissingExtraError) as raised:
            hidden.setitem(sys.modules, module, None)
            require(extra, "this")
        assert str(raised.value) == f"this needs {package}, which is not installed: pip install 'tidelog[{extra}]'"
        assert isinstance(raised.value, ImportError)


def test_embedded_zookeeper_without_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(LocalError, match=r"pyspark: pip install 'tidelog\[local\]', or pass --zookeeper HOST:PORT$"):
        find_jars()


def test_defect_of_our_own_modules_is_not_called_a_missing_package() -> None:
    done = run_without(["tidelog.cli.commands"], COMMAND_LINE, "--version")
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of tidelog.cli.commands")
    assert "pip install" not in done.stderr


def test_modules_of_the_client_import_without_the_packages_of_extras() -> None:
    program = f"""
import importlib, pkgutil, tidelog
found = [each.name for each in pkgutil.walk_packages(tidelog.__path__, "tidelog.", onerror=lambda name: None)]
client = [name for name in found if not name.startswith({OF_EXTRAS})]
for name in client:
    importlib.import_module(name)
print(len(client) > 100)
"""
    done = run_without(EVERYTHING, program)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_simulator_needs_no_more_than_its_script_installs() -> None:
    [extras] = re.findall(r"^prepare_environment (\S+)$", (ROOT / "scripts/simulate").read_text(), re.MULTILINE)
    allowed = {module for extra in extras.split(",") for module in NEEDED[extra]}
    done = run_without({*EVERYTHING, "confluent_kafka", "hypothesis"} - allowed, MODULE, "verify.simulation", "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_client_loads_no_package_of_an_extra() -> None:
    program = f"""
import sys
from tidelog import Admin, Consumer, Producer
for client in Admin, Consumer, Producer:
    client(bootstrap_servers="127.0.0.1:1").close()
print([name for name in {EVERYTHING} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def requirements(extra: str) -> set[str]:
    """Return the names of the packages that the extra installs, also by other extras."""
    found = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        name, others = re.findall(r"^([\w.-]+)(?:\[(.+?)\])?", requirement)[0]
        found |= set().union(*map(requirements, others.split(","))) if name == "tidelog" else {name}
    return found


@pytest.mark.parametrize("extra", NEEDED)
def test_extra_installs_every_package_that_its_uses_need(extra: str) -> None:
    assert set(NEEDED[extra].values()) <= requirements(extra)


def test_guide_lists_the_packages_of_each_extra() -> None:
    section = (ROOT / "docs/GUIDE.md").read_text().partition("## What to install")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    assert list(rows) == list(FOR_USERS)
    for extra, row in rows.items():
        named = set(re.findall(r"\w+", row)) & (requirements(extra) | set(FOR_USERS))
        packages = (requirements(name) if name in FOR_USERS else {name} for name in named)
        assert set().union(*packages) == requirements(extra)
    assert run_without(["click"], COMMAND_LINE).stderr in section
