"""The commands of README and of the guide, typed from top to bottom in a directory with nothing but the README."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.processes.harness.command import TIDELOG, Shell, a_newcomer

ROOT = Path(__file__).parents[2]
README, GUIDE = (ROOT / "README.md").read_text(), (ROOT / "docs" / "GUIDE.md").read_text()
LINES = README.splitlines()

_TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_TABLE = r"^ *PARTITION +"

#: A pattern of the output of each command, standard output first and then standard error.
SHOWS = {
    "tidelog up --detach": r"^broker 3 +127\.0\.0\.1:\d+ +ready after (.*\n)+bootstrap servers +127\.0\.0\.1:\d+,",
    "tidelog topic create lines --partitions 6": r"^created lines: 6 partitions, 3 replicas of each$",
    "tidelog produce lines < README.md": rf"^wrote {len(LINES)} records, .* to 6 partitions of lines: lines/0 offsets",
    "tidelog consume lines": r"^# Tidelog$",
    "tidelog consume lines --from -1h": r"^tidelog: before_log_start: all 6 partitions start with their oldest record",
    "tidelog offsets lines --at 2026-11-21T09:30:00Z": rf"{_TABLE}OFFSET +TIME.*\n +0 +0 +{_TIME} +before_log_start",
    "tidelog topic describe lines": rf"{_TABLE}LEADER +EPOCH +ISR .*\n +0 +\d +0 +[123,]+ ",
    "tidelog down": r"^stopped the cluster in /",
    "tidelog consume lines --group billing": r"^# Tidelog$",
    "tidelog group describe billing": r"^billing +Empty (.*\n)+lines +0 +(\d+) +\2 +0 +0",
    "tidelog group reset billing --topic lines --to-time -1h": (
        rf"^lines +0 +(\d+) +0 +-\1 +{_TIME} +every record is newer(.*\n)+nothing is changed yet: "
    ),
    "tidelog topic describe lines --times": rf"{_TABLE}RECORDS +SIZE .*\n +0 +\d+ .* {_TIME} +{_TIME}$",
    "tidelog topic alter lines --config retention.ms=86400000": r"^lines: retention\.ms=86400000$",
    "tidelog topic alter lines --partitions 12": r"^lines has 12 partitions now$",
    "tidelog topic elect lines": rf"{_TABLE}LEADER +ELECTION\n +0 +\d ",
    "tidelog topic reassign lines --replicas 0:2,3,1": (
        r"^lines/0: (replicas [123,]+ → 2,3,1|has the replicas 2,3,1 already)"
    ),
    "tidelog config describe lines": r"^retention\.ms +86400000 +topic$",
    "tidelog topic delete-records lines --before 0:end": rf"{_TABLE}BEGINS AT (.*\n)+nothing is changed yet: ",
    "tidelog logdirs": r"^ +1 +/.*/broker-1 +\d+ .* online$",
    "tidelog brokers": r"^ +1 +127\.0\.0\.1:\d+ +(yes|no)$",
    "tidelog clients": r"^tidelog-cli +tidelog/",
    "tidelog status": r"^broker 1 .* running, ready\n(.*\n)+ZooKeeper .* running",
    "tidelog logs --follow": r"^==> broker 1 <==\n.* broker 1 serves health and metrics at http://",
    "tidelog doctor": r"^ok +broker 1 +ready at 127\.0\.0\.1:",
    "tidelog explain lines/0": r"^lines/0: broker \d leads in epoch \d+, replicas 2, 3, 1, ",
}

#: Blocks of other commands by their first line, and why they are not typed here.
ELSEWHERE = {
    "scripts/demo": "scripts of a clone; scripts/test runs this test, and tests/tools the parts of the demo",
    "$ tidelog topic describe lines": "shows 10,000 partitions: tests/tidelog/test_cli_long_tables.py",
    "docker compose up": "needs a container engine: scripts/compose-check types them there",
    "echo hello | kcat": "needs kcat: tests/clients/test_kafka_clients_page.py",
    "from confluent_kafka": "Python: tests/clients/test_kafka_clients_page.py",
    "tidelog chaos --scenario leader-kill": "takes minutes: tests/processes/test_chaos.py runs a scenario",
    "scripts/simulate": "scripts of a clone: tests/simulation, tests/tools and tests/fuzz run each with little to do",
    "tidelog/    what users import": "the folders",
    "from datetime": "Python: tests/processes/test_readme.py",
    "from tidelog": "Python: tests/processes/test_readme.py",
    "from pyspark": "Python: tests/processes/test_readme.py",
}


def commands() -> list[str]:
    """Return the commands of the quick start and of the guide, but not `pip install`, which test_wheel.py runs."""
    blocks = [
        *re.findall(r"## Quick start\n+```\n(.*?)```", README, re.DOTALL),
        *re.findall(r"## Commands\n+```\n(.*?)```", GUIDE, re.DOTALL),
    ]
    assert len(blocks) == 2
    typed = (re.sub(r"\s{2,}#.*", "", line) for block in blocks for line in block.splitlines())
    return [part for line in typed if not line.startswith("pip ") for part in re.split(r";\s*", line)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "README.md").write_text(README)
    with a_newcomer(tmp_path) as user:
        yield user


def run(shell: Shell, typed: str) -> tuple[int, str]:
    """Return the exit status and both outputs. A command that does not end by itself is ended by Ctrl-C."""
    environment = shell.environment({"PATH": f"{TIDELOG.parent}{os.pathsep}{os.environ['PATH']}"})
    with subprocess.Popen(
        ["bash", "-c", f"exec {typed}" if typed.endswith("--follow") else typed],
        env=environment,
        cwd=shell.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs with SIGINT ignored. Commands of these tests would inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        try:
            begun = ""
            if typed.endswith("--follow"):
                begun = process.stdout.readline() + process.stdout.readline()
                process.send_signal(signal.SIGINT)
            output, complaint = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, begun + output + complaint


def test_every_block_of_readme_and_guide_is_typed_here_or_elsewhere() -> None:
    blocks = [block.strip() for block in re.findall(r"```(?:python)?\n(.*?)```", README + GUIDE, re.DOTALL)]
    mine = [block for block in blocks if "tidelog up --detach" in block]
    assert len(mine) == 2
    for block in blocks:
        assert block in mine or block.startswith(tuple(ELSEWHERE)), f"typed nowhere: {block}"
    for first in ELSEWHERE:
        assert any(block.startswith(first) for block in blocks), f"not in the documents any more: {first}"
    assert list(SHOWS) == list(dict.fromkeys(commands()))


@pytest.mark.slow
def test_every_command_works_as_typed_and_prints_something(shell: Shell) -> None:
    for typed in commands()[:-1]:
        status, shown = run(shell, typed)
        assert status == (130 if typed.endswith("--follow") else 0), f"{typed}: {status}\n{shown}"
        assert re.search(SHOWS[typed], shown, re.MULTILINE), f"{typed}:\n{shown}"
        assert "Traceback" not in shown and "unforeseen" not in shown, f"{typed}:\n{shown}"
        if typed in ("tidelog consume lines", "tidelog consume lines --group billing"):
            assert sorted(shown.splitlines()) == sorted(LINES)

    copy = "tidelog consume a --format json | tidelog produce b --format json"
    assert copy in " ".join(GUIDE.split())
    run(shell, "tidelog topic create a; tidelog topic create b; echo 1 | tidelog produce a")
    assert run(shell, copy) == (0, "wrote 1 record, 1 B, to 1 partition of b: b/0 offset 0\n")

    completion = 'eval "$(tidelog completion bash)"'
    assert completion in GUIDE
    assert run(shell, f"{completion} && complete -p tidelog")[0] == 0

    assert "`tidelog dump FILE…` shows" in GUIDE
    status, shown = run(shell, "tidelog dump --records home/broker-1/lines-0/*.log")
    assert (status, "# Tidelog" in shown or "offset" in shown) == (0, True), shown

    last = commands()[-1]
    status, shown = run(shell, last)
    assert status == 0 and re.search(SHOWS[last], shown), shown
