"""Wrong input and broken environments: each case ends in time with one line that names the next step."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zmq

from tests.processes.harness.command import Outcome, Shell, a_newcomer, processes_of
from tests.processes.harness.sampling import each_fourth
from tests.processes.harness.waiting import wait_bitten, wait_for

pytestmark = pytest.mark.xdist_group("bad input")  # all tests share one cluster


@dataclass(frozen=True)
class Case:
    """A command line, what it is given, and how it must end."""

    name: str
    arguments: str
    shown: str
    status: int = 1
    given: bytes = b""
    environment: dict[str, str | None] = field(default_factory=dict)


NOWHERE: dict[str, str | None] = {"TIDELOG_BOOTSTRAP_SERVERS": "127.0.0.1:1"}

#: These run in a cluster with a topic `t` of one partition and one record, and a group `g` before that record.
CASES = [
    Case("unknown command", "nope", "No such command 'nope'", 2),
    Case("unknown option", "consume t --nope", "No such option", 2),
    Case("unknown option of up", "up --nope", "No such option", 2),
    Case("no topic named", "produce", "Missing argument 'TOPIC'", 2),
    Case("no such value", "consume t --format xml", "'xml' is not one of 'lines', 'json'", 2),
    Case("unknown topic, consume", "consume nope", "no topic 'nope': tidelog topic list"),
    Case(
        "unknown topic, produce", "produce nope", "no topic 'nope': create it with tidelog topic create", given=b"x\n"
    ),
    Case("unknown topic, offsets", "offsets nope --at -1h --json", "no topic 'nope'"),
    Case("unknown topic, describe", "topic describe nope --json", "no topic 'nope'"),
    Case("unknown topic, delete", "topic delete nope", "no topic 'nope'"),
    Case("unknown topic, explain", "explain nope/0", "topic 'nope' does not exist"),
    Case("unknown partition, explain", "explain t/5 --json", "topic 't' has no partition 5: its only partition is 0"),
    Case("no partition, explain", "explain t", "'t' is not TOPIC/PARTITION, such as lines/0", 2),
    Case("malformed address, doctor", "doctor --bootstrap-servers nope", "'nope' is not host:port", 2),
    Case("impossible topic", "topic create bad/name", "only ASCII letters, digits"),
    Case("topic that exists", "topic create t", "exists already: see tidelog topic describe t"),
    Case("unknown partition", "consume t --partition 5", "has no partition 5: its only partition is 0"),
    Case("unknown partition, produce", "produce t --partition 5", "has no partition 5", given=b"x\n"),
    Case("unknown topic setting", "topic create new --config nope=1", "no topic setting 'nope'"),
    Case("malformed topic setting", "topic create new --config nope", "'nope' is not KEY=VALUE", 2),
    Case("a text as long as may be", f"topic create new --config retention.ms={'1' * 32_767}", "ms=1{100}…: must be a"),
    Case(
        "a text too long to send",
        f"topic create new --config retention.ms={'1' * 32_768}",
        "at most 32767 bytes",
    ),
    Case("no Unicode to send", "topic create new --config retention.ms=1\udcff", "must be text that UTF-8 can encode"),
    Case(
        "too many replicas",
        "topic create new --replication-factor 9",
        "replication factor 9 is larger than the number of live brokers",
    ),
    Case("naive --from", "consume t --from 2026-01-01T00:00:00", "add Z for UTC, or an offset", 2),
    Case("naive --until", "consume t --until 2026-01-01", "add Z for UTC, or an offset", 2),
    Case("naive --at", "offsets t --at 2026-01-01T00:00", "add Z for UTC, or an offset", 2),
    Case("neither --at nor --before", "offsets t", "give exactly one of --at TIME and --before TIME", 2),
    Case("both --at and --before", "offsets t --at -1h --before -1h", "give exactly one of", 2),
    Case("naive --before", "offsets t --before 2026-01-01T00:00", "add Z for UTC, or an offset", 2),
    Case("no offsets at all", "offsets t --before -1h --max 0", "0 is not in the range", 2),
    Case("unknown topic, --before", "offsets nope --before -1h --json", "no topic 'nope'"),
    Case("negative --at", "offsets t --at -5 --json", "a timestamp must not be negative", 2),
    Case("negative --from", "consume t --from -5", "-5 is negative: offsets start at 0", 2),
    Case("no time at all", "offsets t --at soon", "'soon' is not a time: give 20", 2),
    Case("a day without zone", "offsets t --at yesterday", "add Z for UTC, or an offset such as .*02:00, or a zone", 2),
    Case("no such hour", "offsets t --at 2026-01-01T25:00Z", "'2026-01-01T25:00Z' is not a time", 2),
    Case("no such day", "consume t --from 2026-02-30T12:00Z", "'2026-02-30T12:00Z' is not a time", 2),
    Case("no such zone", "offsets t --at -1h --timezone Europe/Berln", "did you mean Europe/Berlin", 2),
    Case("a path as zone", "consume t --timezone ../../etc/passwd", "no time zone '../../etc/passwd'", 2),
    Case("no such offset of a zone", "offsets t --at 2026-01-01T12:00+24:00", r"\+24:00 is not the offset of", 2),
    Case("outside the calendar", "offsets t --at 9999-12-31T23:59-12:00", "is outside the calendar", 2),
    Case("before 1970", "consume t --until -9999999h", "a timestamp must not be negative", 2),
    Case("beyond 64 bits", "offsets t --at 9223372036854775808", "is too large for a timestamp", 2),
    Case("negative --until", "consume t --until -5", "-5 is negative: offsets start at 0", 2),
    Case(
        "seconds for an offset",
        "consume t --from 1550804131 --partition 0",
        "past the end of partition 0 of 't', which ends at 1; .*; a time is written as .*@1550804131000 if",
    ),
    Case("unknown topic, times", "topic describe nope --times --json", "no topic 'nope'"),
    Case("unknown partition, times", "consume t --from -1h --partition 5", "its only partition is 0"),
    Case("cluster down, times", "topic describe t --times --timeout 0.5", "tidelog up starts it", environment=NOWHERE),
    Case("cluster down, a time", "consume t --from -1h --timeout 0.5", "tidelog up starts it", environment=NOWHERE),
    Case(
        "offset past the end", "consume t --from 100", "offset 100 is past the end of partition 0 .*ends at 1; --from"
    ),
    Case("offset past the end, named", "consume t --from 9 --partition 0", "offset 9 is past the end of partition 0"),
    Case("offset past the end, followed", "consume t --from 9 --follow", "offset 9 is past the end of partition 0"),
    Case("offset at the end", "consume t --from 1", "nothing to read: partition 0 of 't' ends at 1; --follow waits", 0),
    Case("end before the start", "consume t --from 5 --until 3", "--until 3 comes before --from 5: nothing lies", 2),
    Case("times in the wrong order", "consume t --from -1h --until -2h", "--until .* comes before --from .*Z", 2),
    Case("endless and ending", "consume t --follow --until end", "--follow has no end", 2),
    Case("unknown group, describe", "group describe nope", "no group 'nope': tidelog group list shows all groups"),
    Case("unknown group, delete", "group delete nope", "no group 'nope': tidelog group list"),
    Case("unknown group, its topics", "group delete nope --topic t", "no group 'nope'"),
    Case("unknown group, reset", "group reset nope --all-topics --to-latest", "no group 'nope'"),
    Case("unknown group, state", "group describe nope --state --json", "no group 'nope'"),
    Case("group that never committed it", "group delete g --topic other", "no committed offset for other"),
    Case("reset, nowhere", "group reset g --to-latest", "give --topic TOPIC", 2),
    Case("reset, everywhere twice", "group reset g --topic t --all-topics --to-latest", "give --topic TOPIC", 2),
    Case("reset, no way", "group reset g --topic t", "give exactly one of --to-time, .* and --to-current", 2),
    Case("reset, two ways", "group reset g --topic t --to-latest --shift-by 1", "--to-current, not 2 of them", 2),
    Case("reset, naive time", "group reset g --topic t --to-time 2026-01-01T00:00", "add Z for UTC, or an offset", 2),
    Case("reset, negative time", "group reset g --topic t --to-time -5", "a timestamp must not be negative", 2),
    Case("reset, negative offset", "group reset g --topic t --to-offset -1", "-1 is not in the range", 2),
    Case("reset, no duration", "group reset g --topic t --by-duration soon", "'soon' is not a duration, such as", 2),
    Case("reset, months", "group reset g --topic t --by-duration P1M", "'P1M' is not a duration", 2),
    Case("reset, unknown topic", "group reset g --topic nope --to-latest", "no topic 'nope'"),
    Case("reset, unknown partition", "group reset g --topic t:0,5 --to-latest", "topic 't' has no partition 5"),
    Case("reset, no partition", "group reset g --topic t:x --to-latest", "'t:x' is not TOPIC or TOPIC:0,1", 2),
    Case("reset, no topic", "group reset g --topic a/b --to-latest", "only ASCII letters, digits"),
    Case("group with a name too long", f"group describe {'g' * 40_000}", "must have at most 32767 bytes, not 40000"),
    Case("group without a text for a name", "group describe \udcff", "must be text that UTF-8 can encode"),
    Case("no number of seconds to watch", "group describe g --rate nan", "is not a number of seconds", 2),
    Case("no such state", "group list --state nope", "'nope' is not one of 'empty', 'prep", 2),
    Case(
        "two descriptions", "group describe g --members --state", "give at most one of --members, --state and --rate", 2
    ),
    Case("group and partition", "consume t --group g --partition 0", "shares the partitions .* leave out", 2),
    Case("group from an offset", "consume t --group g --from 5", "tidelog group reset --to-offset", 2),
    Case("group of an unknown topic", "consume nope --group g", "no topic 'nope'"),
    Case("group, naive --from", "consume t --group g --from 2026-01-01", "add Z for UTC", 2),
    Case("cluster down, groups", "group list --json --timeout 0.5", "no broker answered", environment=NOWHERE),
    Case("cluster down, group", "group describe g --timeout 0.5", "tidelog up starts it", environment=NOWHERE),
    Case("missing file", "produce t missing.txt", "'missing.txt': No such file", 2),
    Case("directory as file", "produce t .", "Is a directory", 2),
    Case("no JSON", "produce t --format json", "line 1: not JSON", given=b"hello\n"),
    Case("negative JSON timestamp", "produce t --format json", "timestamp must be", given=b'{"timestamp": -1}\n'),
    Case("far future", "produce t --format json", "message.timestamp.after", given=b'{"timestamp": 99999999999999}\n'),
    Case("no separator", "produce t --key-separator :", "line 1: no ':' in the line", given=b"hello\n"),
    Case(
        "10 MB line",
        "produce t",
        "standard input, line 1: .*max.message.bytes is 1048588",
        given=b"x" * (10 << 20) + b"\n",
    ),
    Case("endless line", "produce t", "line 1: the line is longer than", given=b"x" * (33 << 20)),
    Case("malformed address", "topic list --bootstrap-servers nope", "'nope' is not host:port", 2),
    Case("URL as address", "topic list --bootstrap-servers http://a:1", "'http://a:1' is not host:port", 2),
    Case("no number of seconds", "topic list --timeout nan", "is not a number of seconds", 2),
    Case("data directory without a name", "up --data-dir=", "must not be empty", 2),
    Case(
        "unknown partition in a line",
        "produce t --format json",
        "line 1: .*only partition is 0",
        given=b'{"partition": 9}\n',
    ),
    Case("cluster down, consume", "consume t --timeout 0.5", "no broker answered at 127.0.0.1:1", environment=NOWHERE),
    Case("cluster down, produce", "produce t --timeout 0.5", "tidelog status shows", given=b"x\n", environment=NOWHERE),
    Case("cluster down, list", "topic list --json --timeout 0.5", "tidelog up starts it", environment=NOWHERE),
    Case("cluster down, offsets", "offsets t --at 0 --json --timeout 0.5", "tidelog up", environment=NOWHERE),
    Case(
        "nothing was ever started", "consume t", "start one with tidelog up", environment={"TIDELOG_HOME": "/nowhere"}
    ),
    Case("nothing to stop", "down", "start one with tidelog up", environment={"TIDELOG_HOME": "/nowhere"}),
    Case("nothing to show", "status --json", "start one with tidelog up", environment={"TIDELOG_HOME": "/nowhere"}),
    Case("no such log", "logs 9", "the logs are broker 1, zookeeper", 2),
    Case("no such settings file", "broker --config missing.toml", "'missing.toml' does not exist", 2),
]


#: These run in the same cluster. Each prints one line, and the rest is done.
ODD_CASES = [
    Case("end past the end", "consume t --until 100", "--until 100 is past the end of partition 0, at 1", 0),
    Case("offsets in the future", "offsets t --at 2100-01-01T00:00Z", r"--at 2100-.* is 7\d.* years in the future", 0),
    Case("reset to the future", "group reset g --topic t --to-time 2100-01-01T00:00Z --json", "years in the future", 0),
]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A user with a running cluster of one broker, in a directory whose folders are named like our packages."""
    directory = tmp_path_factory.mktemp("a user's")
    for shadow in ("node", "storage", "cluster", "tidelog"):
        (directory / shadow).mkdir()
        (directory / shadow / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    user = Shell(directory, directory / "home dir")
    try:
        user.succeed("up", "--brokers", "1", "--detach")
        user.succeed("topic", "create", "t")
        user.succeed("produce", "t", given=b"first\n")
        user.succeed("group", "reset", "g", "--topic", "t", "--to-earliest", "--execute")
        yield user
    finally:
        user.run("down", "--purge")
        assert processes_of(directory) == []


#: The minimal settings of a broker; no ZooKeeper is at that address.
WHOLE = b"broker_id = 1\nlog_dirs = 'data'\nzookeeper = '127.0.0.1:1'\nzookeeper_connect_timeout_ms = 500\n"


def assert_one_line(outcome: Outcome, shown: str) -> None:
    assert "Traceback" not in outcome.complaint
    assert len(outcome.complaint_lines) == 1, outcome.complaint
    assert outcome.complaint.startswith("tidelog: ")
    assert re.search(shown, outcome.complaint), outcome.complaint


def drain(shell: Shell, topic: str, *options: str) -> bytes:
    return shell.succeed("consume", topic, *options)


@pytest.mark.slow
@pytest.mark.parametrize("case", ODD_CASES, ids=lambda case: case.name)
def test_bound_outside_the_log_prints_one_line_and_the_rest_is_read(shell: Shell, case: Case) -> None:
    outcome = shell.run(*case.arguments.split())
    assert_one_line(outcome, case.shown)
    assert (outcome.status, outcome.output != b"") == (case.status, True)


@pytest.mark.parametrize("case", each_fourth(CASES), ids=lambda case: case.name)
def test_wrong_input_prints_one_line(shell: Shell, case: Case) -> None:
    before = processes_of(shell.directory)
    outcome = shell.run(*case.arguments.split(), given=case.given, environment=case.environment)
    assert_one_line(outcome, case.shown)
    assert outcome.status == case.status
    assert outcome.output == b""
    assert len(processes_of(shell.directory)) == len(before)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (b"x = [", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b"broker_id = 1\n", "missing: log_dirs, zookeeper"),
        (WHOLE + b"broker_id = 2\n", "is not TOML"),
        (WHOLE + b"num_network_threads = 3\n", "no such setting: num_network_threads"),
        (WHOLE + b"num_partitions = 'many'\n", "num_partitions must be a whole number, not 'many'"),
        (WHOLE.replace(b":1", b":1/a/../b"), "zookeeper: the path /a/../b must not contain"),
    ],
)
def test_broker_reports_wrong_settings_once(shell: Shell, settings: bytes, shown: str) -> None:
    (shell.directory / "bad.toml").write_bytes(settings)
    outcome = shell.run("broker", "--config", "bad.toml")
    assert outcome.status == 1
    assert len(outcome.complaint_lines) == 1, outcome.complaint
    assert outcome.complaint.startswith("broker: bad.toml") and shown in outcome.complaint


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (
            b"log_file = 'no/such/place.log'\n",
            "log_file: no/such/place.log cannot be written: No such file or directory",
        ),
        (b"http_listener = '192.0.2.1:80'\n", "cannot listen on 192.0.2.1:80: Cannot assign requested address"),
        (b"log_level = 'ERROR'\n", "no ZooKeeper answers at 127.0.0.1:1 (tried for 500 ms); start it, or name another"),
    ],
)
def test_broker_that_cannot_start_names_the_reason_in_its_last_line(shell: Shell, setting: bytes, shown: str) -> None:
    (shell.directory / "bad.toml").write_bytes(WHOLE + setting)
    outcome = shell.run("broker", "--config", "bad.toml")
    assert "Traceback" not in outcome.complaint and "Errno" not in outcome.complaint
    assert (outcome.status, outcome.complaint_lines[-1].removeprefix("broker: ")) == (1, shown)


def test_ctrl_c_during_imports_ends_a_broker_without_output(shell: Shell) -> None:
    (shell.directory / "bad.toml").write_bytes(WHOLE.replace(b"_timeout_ms = 500", b"_timeout_ms = 60000"))

    def cut_short() -> bool:
        """Return whether the signal came before the broker could stop in good order; only then the status is not 0."""
        with shell.start("broker", "--config", "bad.toml") as process:
            assert process.stderr is not None
            maps = Path(f"/proc/{process.pid}/maps")
            wait_for("the first of its libraries", lambda: "uvloop" in maps.read_text())
            process.send_signal(signal.SIGINT)
            status = process.wait(40)
            assert b"Traceback" not in process.stderr.read()
        return status != 0

    wait_bitten("Ctrl-C among the modules", cut_short)


ODD_INPUTS = {
    "empty": b"",
    "no final newline": b"one\ntwo",
    "CRLF": b"one\r\ntwo\r\n",
    "empty lines": b"\n\n\nx\n\n",
    "NUL": b"a\0b\n\0\n",
    "broken UTF-8": b"\xff\xfe\n\xc3\x28\n\xed\xa0\x80\n",
    "binary": random.Random(1).randbytes(300_000),
    "1 MB line": b"x" * 1_000_000 + b"\ny\n",
}


@pytest.mark.slow
def test_odd_lines_come_back_as_they_went_in(shell: Shell) -> None:
    """Each in a partition of its own, as lines and as a copy through JSON lines."""
    for topic in ("odd", "odd-copy"):
        shell.succeed("topic", "create", topic, "--partitions", str(len(ODD_INPUTS)))
    for partition, (name, given) in enumerate(ODD_INPUTS.items()):
        (shell.directory / "input").write_bytes(given)
        shell.succeed("produce", "odd", "input", "--partition", str(partition))
        expected = given + (b"" if not given or given.endswith(b"\n") else b"\n")
        assert drain(shell, "odd", "--partition", str(partition)) == expected, name
    original = drain(shell, "odd", "--format", "json")
    shell.succeed("produce", "odd-copy", "--format", "json", given=original)
    assert by_place(drain(shell, "odd-copy", "--format", "json")) == by_place(original)


def by_place(json_lines: bytes) -> dict[tuple[int, int], dict[str, object]]:
    """Partition and offset → what must not be lost on the way."""
    records = list(map(json.loads, json_lines.splitlines()))
    kept = ("timestamp", "key", "value", "headers")
    return {(each["partition"], each["offset"]): {name: each[name] for name in kept} for each in records}


def test_lines_before_a_bad_line_are_delivered_and_counted(shell: Shell) -> None:
    shell.succeed("topic", "create", "partly")
    outcome = shell.run("produce", "partly", "--format", "json", given=b'{"value": "good"}\n{"valeu": "bad"}\n{}\n')
    assert_one_line(outcome, "line 2: unknown field valeu; .* 1 of 1 record sent was acknowledged")
    assert drain(shell, "partly") == b"good\n"


def test_closed_output_ends_the_command_without_an_error(shell: Shell) -> None:
    shell.succeed("topic", "create", "headed")
    shell.succeed("produce", "headed", given=b"a line that fills the pipe\n" * 50_000)
    for command in (["consume", "headed"], ["consume", "headed", "--follow"]):
        with shell.start(*command) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == b"a line that fills the pipe\n"
            process.stdout.close()
            assert process.wait(20) == 0
            assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["consume t --follow", "logs zookeeper --follow"])
def test_follower_notices_closed_output_while_no_record_arrives(shell: Shell, command: str) -> None:
    with shell.start(*command.split()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() != b""
        process.stdout.close()
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    "command", ["consume t", "topic list", "topic describe t --json", "offsets t --at 0", "status", "--help", "logs"]
)
def test_a_full_standard_output_is_an_error(shell: Shell, command: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        outcome = shell.run(*command.split(), output=full)
    finally:
        os.close(full)
    assert_one_line(outcome, "cannot write to standard output: No space left on device")
    assert outcome.status == 1


def test_ctrl_c_ends_a_follower_at_once(shell: Shell) -> None:
    with shell.start("consume", "t", "--follow") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == b""


def test_ctrl_c_reports_the_acknowledged_lines(shell: Shell) -> None:
    shell.succeed("topic", "create", "interrupted")
    with shell.start("produce", "interrupted") as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        wait_for("both lines", lambda: drain(shell, "interrupted") == b"one\ntwo\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        shown = b"tidelog: interrupted: 2 of 2 records sent were acknowledged: interrupted/0 offsets 0 to 1\n"
        assert process.stderr.read() == shown


def frames_nobody_understands() -> Iterator[bytes]:
    yield b""
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\0\0\0\x10" + b"\xff" * 16
    yield bytes(64)
    yield b"\xff" + b"\0" * 8 + b"\x7f\x03\0NULL"
    yield random.Random(2).randbytes(100_000)


def test_a_malformed_frame_does_not_disturb_a_broker(shell: Shell) -> None:
    before = json.loads(shell.succeed("status", "--json"))["brokers"][0]
    for port in (before["port"], before["replication_port"]):
        for content in frames_nobody_understands():
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(content)
        # Past ZeroMQ's own handshake, too.
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 500)
            dealer.connect(f"tcp://127.0.0.1:{port}")
            for frames in ([b""], [b"\x81"], [b"\xc1" * 50, b"x"], [b"\x98" + b"\xff" * 8, b"\x90"], [b"x"] * 50):
                dealer.send_multipart(frames)
    assert drain(shell, "t") == b"first\n"
    after = json.loads(shell.succeed("status", "--json"))["brokers"][0]
    assert after == before and after["alive"]
    assert b"Traceback" not in shell.succeed("logs", "1", "--lines", "1000")


# --- starting a cluster, each in a home of its own ---------------------------------------------------------------


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Shell]:
    """A user without a cluster."""
    with a_newcomer(tmp_path) as user:
        yield user


def fake_java(directory: Path, says: str) -> str:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return str(java.parent)


def test_up_without_java_says_what_to_install(newcomer: Shell) -> None:
    outcome = newcomer.run("up", environment={"PATH": str(newcomer.directory), "JAVA_HOME": None})
    assert_one_line(outcome, "Java 17 or newer is needed .*: apt-get install openjdk-17-jre-headless")
    assert outcome.status == 1


def test_up_with_an_old_java_names_it(newcomer: Shell) -> None:
    path = fake_java(newcomer.directory, 'openjdk version "11.0.22"')
    outcome = newcomer.run("up", environment={"PATH": path + ":/usr/bin:/bin", "JAVA_HOME": str(newcomer.directory)})
    if outcome.status == 0:
        pytest.skip("another Java on the fixed part of PATH is new enough, and is taken")
    assert_one_line(outcome, "Java 17 or newer is needed .*java is Java 11")


@pytest.mark.parametrize("place", ["/dev/null/data", "/proc/data", "file/data", "file"])
def test_a_data_directory_that_cannot_be_written_is_refused(newcomer: Shell, place: str) -> None:
    (newcomer.directory / "file").write_text("in the way")
    outcome = newcomer.run("up", "--data-dir", place)
    assert_one_line(outcome, "cannot write to .*; choose another directory with --data-dir or TIDELOG_HOME")
    assert outcome.status == 1


@pytest.mark.slow
def test_port_in_use_is_named_and_no_process_remains(newcomer: Shell) -> None:
    newcomer.succeed("up", "--brokers", "1", "--detach")
    newcomer.succeed("down")
    status = json.loads(newcomer.succeed("status", "--json"))
    ports = {"ZooKeeper": int(status["zookeeper"].rpartition(":")[2]), "broker 1": status["brokers"][0]["port"]}
    for whose, port in ports.items():
        with socket.create_server(("127.0.0.1", port)):
            outcome = newcomer.run("up", "--detach")
        assert_one_line(outcome, f"port {port} of {whose} is in use")
        assert outcome.status == 1
        assert processes_of(newcomer.directory) == []


def test_missing_zookeeper_is_named_in_time(newcomer: Shell) -> None:
    outcome = newcomer.run("up", "--brokers", "1", "--zookeeper", "127.0.0.1:1")
    assert_one_line(outcome, "no ZooKeeper answers .*127.0.0.1:1: Connection refused.*--zookeeper")
    assert outcome.status == 1


@pytest.fixture
def up(shell: Shell, newcomer: Shell) -> list[str]:
    """Starts the newcomer's one broker on the running ZooKeeper, below a root of its own."""
    zookeeper = json.loads(shell.succeed("status", "--json"))["zookeeper"]
    return ["up", "--brokers", "1", "--zookeeper", f"{zookeeper}/{newcomer.directory.name}"]


@pytest.mark.slow
def test_commands_end_in_time_if_brokers_stop_meanwhile(newcomer: Shell, up: list[str]) -> None:
    newcomer.succeed(*up, "--detach")
    newcomer.succeed("topic", "create", "t")
    reading = newcomer.start("consume", "t", "--follow", "--timeout", "3")
    writing = newcomer.start("produce", "t", "--timeout", "3")
    with reading, writing:
        assert reading.stdout is not None and reading.stderr is not None
        assert writing.stdin is not None and writing.stderr is not None
        writing.stdin.write(b"before\n")
        writing.stdin.flush()
        assert reading.stdout.readline() == b"before\n"
        newcomer.succeed("down")
        writing.stdin.write(b"after\n")
        writing.stdin.close()
        assert (reading.wait(30), writing.wait(30)) == (1, 1)
        shown = [reading.stderr.read().decode(), writing.stderr.read().decode()]
    for complaint in shown:
        assert len(complaint.splitlines()) == 1, complaint
        assert "tidelog status shows" in complaint
    assert "1 of 2 records sent were acknowledged" in shown[1]
    newcomer.succeed("up", "--detach")
    assert drain(newcomer, "t").startswith(b"before\n")


def wait_until_up(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    while b"tidelog down" not in process.stdout.readline():
        assert process.poll() is None


def test_a_killed_up_leaves_a_cluster_that_down_can_stop(newcomer: Shell, up: list[str]) -> None:
    with newcomer.start(*up) as process:
        wait_until_up(process)
        process.kill()
    assert len(processes_of(newcomer.home)) == 1
    newcomer.succeed("down")
    assert processes_of(newcomer.home) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_sigterm_to_up_stops_all_processes(newcomer: Shell, up: list[str], number: signal.Signals) -> None:
    with newcomer.start(*up) as process:
        wait_until_up(process)
        process.send_signal(number)
        assert process.wait(30) == 0
    assert processes_of(newcomer.home) == []
    assert b"stopped" in newcomer.succeed("status")
