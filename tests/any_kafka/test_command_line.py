"""Test the command line on each cluster: a command works, or says in one line what it needs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests.any_kafka.clusters import AnyCluster
from tests.any_kafka.command_stories import STORIES, Step, client_commands
from tests.processes.harness.command import Outcome, Shell, a_newcomer
from tests.processes.harness.waiting import wait_for
from tidelog import Admin
from tidelog.cli.program import run

pytestmark = [pytest.mark.timeout(600)]

KINDS = {
    "tidelog": "Tidelog",
    "kafka-3.9": "Apache Kafka (without KRaft)",
    "kafka-4.1": "Apache Kafka (metadata.version",
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with a_newcomer(tmp_path_factory.mktemp("newcomer")) as user:
        yield user


def test_stories_use_each_command_that_talks_to_a_cluster() -> None:
    typed = {step.command for story in STORIES.values() for step in story}
    assert typed == client_commands()


def type_in(monkeypatch: pytest.MonkeyPatch, line: list[str], given: bytes) -> Outcome:
    """Run the command line in this process, which is much faster than a process for each of the many commands."""
    with (
        monkeypatch.context() as streams,
        TemporaryFile("w+", newline="") as output,
        TemporaryFile("w+", newline="") as complaint,
    ):
        streams.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        streams.setattr(sys, "stdout", output)
        streams.setattr(sys, "stderr", complaint)
        status = run(line)
        for each in (output, complaint):
            each.flush()
            each.seek(0)
        return Outcome(status, output.buffer.read(), complaint.read())


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_commands_work_or_say_what_they_need(cluster: AnyCluster, monkeypatch: pytest.MonkeyPatch, story: str) -> None:
    topic = cluster.create_topic(2)[0].topic
    names = {"topic": topic, "group": f"group-of-{topic}", "directory": log_directory(cluster)}
    for step in STORIES[story]:
        line = [*step.line.format(**names).split(), "--bootstrap-servers", cluster.bootstrap_servers]
        check(cluster, step, type_in(monkeypatch, line, step.given), names)


def log_directory(cluster: AnyCluster) -> str:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return admin.describe_log_dirs([1])[1][0].path


def check(cluster: AnyCluster, step: Step, outcome: Outcome, names: dict[str, str]) -> None:
    shown = outcome.output.decode() + outcome.complaint
    assert "Traceback" not in shown and "unexpected error" not in shown, f"{step.line}\n{shown}"
    if refusal := step.refused.get(cluster.kind):
        assert (outcome.status, outcome.output) == (1, b""), f"{step.line}\n{shown}"
        assert len(outcome.complaint_lines) == 1 and re.search(refusal, shown), f"{step.line}\n{shown}"
        return
    pattern = step.shows.format(**names).replace("KIND", re.escape(KINDS[cluster.kind]).removesuffix('"') + '[^\n"]*')
    assert outcome.status == step.status, f"{step.line}\n{shown}"
    assert re.search(pattern, shown, re.MULTILINE), f"{step.line}\n{pattern}\n{shown}"
    if outcome.status == 0 and "--json" in step.line.split() and not step.line.startswith("consume"):
        json.loads(outcome.output)


@pytest.mark.slow
def test_environment_variable_is_all_that_a_command_needs(cluster: AnyCluster, shell: Shell) -> None:
    topic = cluster.create_topic()[0].topic
    there = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    assert shell.run("produce", topic, given=b"a\nb\n", environment=there).status == 0
    assert shell.run("consume", topic, environment=there).output == b"a\nb\n"
    doctor = shell.run("doctor", environment=there)
    assert doctor.status == 0 and KINDS[cluster.kind] in doctor.output.decode()


@pytest.mark.slow
def test_reader_that_follows_gets_records_written_later(cluster: AnyCluster, shell: Shell, tmp_path: Path) -> None:
    topic = cluster.create_topic()[0].topic
    there = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    with (
        (tmp_path / "read").open("wb") as output,
        shell.start("consume", topic, "--follow", "--count", "2", environment=there, output=output.fileno()) as reader,
    ):
        try:
            assert shell.run("produce", topic, given=b"a\nb\n", environment=there).status == 0
            wait_for("the reader to end", lambda: reader.poll() is not None, 60)
        finally:
            reader.kill()
    assert (reader.returncode, (tmp_path / "read").read_bytes()) == (0, b"a\nb\n")
