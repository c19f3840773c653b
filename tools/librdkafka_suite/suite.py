"""A built test suite of librdkafka: its tests, one run of a test, and the results of many runs in a file.

The file of results has one JSON object a line, so that an interrupted run is continued: a test that has a line is not
run again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

DEFAULT_SCENARIO = "default"
_TABLE = "struct test tests[]"
_TEST = re.compile(r"_TEST\((\w+),((?:[^()]|\([^()]*\))*)\)")
_SCENARIO = re.compile(r'\.scenario\s*=\s*"([^"]*)"')
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ENDED = re.compile(r"=+ Test (\w+) (PASSED|FAILED|SKIPPED) =+")
_SKIPPED = re.compile(r"\[(\d{4}\w+)\s*/[^\]]*\] WARN: SKIPPING TEST: ")
_FAILURE = re.compile(r'^### Test "(?!<MAIN>)[^\n]*\n[^\n]*', re.MULTILINE)
_NUMBER_LENGTH = 4


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one run of the tests with one number.

    states      PASSED, FAILED or SKIPPED by the name of each test. A test that crashed or timed out has none
    subtests    how many parts of tests have passed
    failures    the first line of each failure, with its cause
    """

    test: str
    seconds: float
    states: dict[str, str] = field(default_factory=dict)
    subtests: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Return whether a test has failed, or has not come to its end."""
        return bool(self.failures) or not self.states or "FAILED" in self.states.values()


class Suite:
    """The suite in `directory`, which is librdkafka's source tree after `make` in it and `make build` in `tests`."""

    def __init__(self, directory: Path, servers: str, scenario: str = DEFAULT_SCENARIO, *, quick: bool = True) -> None:
        self._tests = directory / "tests"
        self._libraries = f"{directory / 'src'}:{directory / 'src-cpp'}"
        self._servers = servers
        self._scenario = scenario
        self._quick = quick

    def numbers(self) -> list[str]:
        """Return the numbers of all tests of the scenario that need brokers."""
        text = (self._tests / "test.c").read_text()
        found: dict[str, None] = {}
        for name, arguments in _TEST.findall(text[text.index(_TABLE) :]):
            scenario = _SCENARIO.search(arguments)
            scenarios = (scenario[1] if scenario else DEFAULT_SCENARIO).split(",")
            if "LOCAL" not in arguments and "MANUAL" not in arguments and self._scenario in scenarios:
                found[name[:_NUMBER_LENGTH]] = None
        return list(found)

    def run(self, number: str, version: str, scratch: Path, timeout_s: float) -> Result:
        """Run the tests with this number; `version` is that of the Kafka that the cluster stands for."""
        config, log = scratch / "test.conf", scratch / f"{number}.log"
        config.write_text(f"metadata.broker.list={self._servers}\ntest.timeout.multiplier=2\ntest.topic.random=true\n")
        environment = os.environ | {
            "TESTS": number,
            "TEST_SCENARIO": self._scenario,
            "TEST_KAFKA_VERSION": version,
            "RDKAFKA_TEST_CONF": str(config),
            "BROKERS": self._servers,
            "LD_LIBRARY_PATH": self._libraries,
        }
        command = ["./test-runner", "-p1", *(["-Q"] if self._quick else []), "-V", version]
        # The exit status says nothing: some versions crash after their last test. A run that times out is killed.
        with log.open("wb") as output, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, cwd=self._tests, env=environment, stdout=output, stderr=output, timeout=timeout_s, check=False
            )
        return read_log(number, log.read_text(errors="replace"))


def read_log(number: str, log: str) -> Result:
    """Return the result that the output of the test runner tells."""
    text = _COLOURS.sub("", log)
    states = dict(_ENDED.findall(text)) | dict.fromkeys(_SKIPPED.findall(text), "SKIPPED")
    seconds = [float(found) for found in re.findall(r"^\[[^\]]*/\s*([\d.]+)s\]", text, re.MULTILINE)]
    return Result(
        test=number,
        seconds=max(seconds, default=0.0),
        states=states,
        subtests=text.count(": PASS ("),
        failures=[" ".join(found.split()) for found in _FAILURE.findall(text)],
    )


def append_result(file: Path, result: Result) -> None:
    with file.open("a") as output:
        output.write(json.dumps(asdict(result)) + "\n")


def read_results(file: Path) -> dict[str, Result]:
    """Return the results in a file by the tests' numbers; none if there is no file."""
    if not file.exists():
        return {}
    return {each["test"]: Result(**each) for each in map(json.loads, file.read_text().splitlines())}


def failed_here_only(results: Sequence[Result], control: dict[str, Result]) -> list[Result]:
    """Return the results that have failed, without those that failed in the control as well."""
    return [
        each for each in results if each.has_failed and not (each.test in control and control[each.test].has_failed)
    ]
