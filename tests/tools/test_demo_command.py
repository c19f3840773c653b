"""Arguments and inputs that `scripts/demo` refuses before it starts anything: one line, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def demo(*arguments: str, stdin: int = subprocess.DEVNULL, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "tools.demo", *arguments],
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "good.log").write_text("2024-01-02T03:04:05Z x\n")
    (tmp_path / "directory").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "{files}/missing.log"], "missing.log: No such file or directory"),
        (["--input", "{files}/good.log", "{files}/missing.log"], "missing.log: No such file or directory"),
        (["--input", "{files}/binary"], "is binary: name a file of lines"),
        (["--input", "{files}/directory"], "is a directory: name the files in it"),
        (["--input", "{files}/good.log", "--json", "{files}/nowhere/x.json"], "choose another --json"),
        (["--input"], "expected at least one argument; see scripts/demo --help"),
        (["--unknown"], "unrecognized arguments: --unknown; see scripts/demo --help"),
    ],
)
def test_wrong_arguments_and_inputs_are_refused_in_one_line(files: Path, arguments: list[str], said: str) -> None:
    ended = demo(*(argument.format(files=files) for argument in arguments))
    assert ended.returncode == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_empty_file_gets_a_verdict_and_a_void_kill(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    ended = demo("--input", str(tmp_path / "empty.log"), "--json", str(tmp_path / "out.json"))
    assert ended.returncode == 1
    assert "the kill could not bite" in ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("verdict: 0 acknowledged, 0 read, 0 lost, 0 doubled;")
    assert ended.stderr == ""
    assert '"ok": false' in (tmp_path / "out.json").read_text()


def test_empty_standard_input_is_an_empty_input(tmp_path: Path) -> None:
    with (tmp_path / "empty").open("w+") as empty:
        ended = demo(stdin=empty.fileno())
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1].startswith("verdict: 0 acknowledged")


def test_full_standard_output_ends_the_demo_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "tools.demo", "--input", "/dev/null"],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "cannot write: No space left on device" in ended.stderr
