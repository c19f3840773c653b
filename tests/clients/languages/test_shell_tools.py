"""Kafka's shell tools do the tasks of docs/KAFKA-TOOLS.md at the brokers' Kafka listener."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from itertools import count
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as ck
import pytest

from tests.clients.cluster_under_test import IS_CONTROL, ClusterUnderTest
from tests.clients.languages.shell_tools import command_of, run_tool
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]  # all tests share one cluster

PAGE = Path(__file__).parents[3] / "docs" / "KAFKA-TOOLS.md"
PARTITIONS = 6
PER_PARTITION = 3
START_MS = 1_790_000_000_000

_numbers = count(1)


class Task(NamedTuple):
    """A call of a script, and the output that it must print.

    arguments   {servers}, {topic}, {group}, {new} and {file} are replaced: the topic has 6 partitions of 3 records, the
                group has committed 2 in each, {new} is an unused name, and {file} is the file with `content`
    shows       a regular expression that is found in what the script prints
    refused     whether Tidelog refuses the request, with an error that `shows` describes
    then        further arguments of the same script, in whose output the second text, a regular expression, is found
    records     lines that a console consumer then prints, in any order: the headers, key and value of each sent record
    """

    script: str
    arguments: str
    shows: str
    text: str = ""
    content: str = ""
    refused: bool = False
    then: tuple[str, str] | None = None
    records: str = ""


_TOPICS, _CONSUMER, _PRODUCER = "kafka-topics", "kafka-console-consumer", "kafka-console-producer"
_GROUPS, _CONFIGS, _REASSIGN = "kafka-consumer-groups", "kafka-configs", "kafka-reassign-partitions"
_LINES = "".join(f"line {number}\n" for number in range(20))
_RECORDS = "".join(f"NO_HEADERS\tnull\tline {number}\n" for number in range(20))
_TO_ONE = json.dumps(
    {
        "version": 1,
        "partitions": [{"topic": "{topic}", "partition": 0, "replicas": [1, 2]}],
    }
)
_RESET = "--reset-offsets --group {group} --topic {topic} "


def _offsets(offset: int, topic: str = "{topic}") -> str:
    return rf"{{group}}\s+{topic}\s+0\s+{offset}\b"


def _without(line: str) -> str:
    return rf"(?m)\A(?![\s\S]*^{line}$)"


#: Each row of the page that names a script with its arguments, by the row's task.
TASKS = {
    "list the brokers, and their racks": Task("kafka-broker-api-versions", "", r"id: 3 rack: [\s\S]*Produce\(0\): "),
    "create, with partitions and replicas": Task(
        _TOPICS, "--create --topic {new} --partitions 3 --replication-factor 3", r"Created topic {new}"
    ),
    "create, with settings": Task(
        _TOPICS,
        "--create --topic {new} --partitions 1 --replication-factor 2 --config cleanup.policy=compact",
        r"Created topic {new}",
        then=("--describe --topic {new}", r"ReplicationFactor: 2\s+Configs: .*cleanup.policy=compact"),
    ),
    "list": Task(_TOPICS, "--list", r"(?m)^{topic}$"),
    "describe: leaders, replicas, in-sync replicas": Task(
        _TOPICS,
        "--describe --topic {topic}",
        r"PartitionCount: 6\s+ReplicationFactor: 3[\s\S]*Partition: 5\s+Leader: \d",
    ),
    "add partitions": Task(
        _TOPICS, "--alter --topic {topic} --partitions 8", "", then=("--describe --topic {topic}", r"PartitionCount: 8")
    ),
    "delete": Task(_TOPICS, "--delete --topic {topic}", r"\A\s*\Z", then=("--list", _without("{topic}"))),
    "send each line of a file as a record": Task(
        _PRODUCER, "--topic {topic}", r"\A>*\s*\Z", text=_LINES, records=_RECORDS
    ),
    "send lines with keys": Task(
        _PRODUCER,
        "--topic {topic} --property parse.key=true --property key.separator=:",
        "",
        text="a:1\nb:2\n",
        records="NO_HEADERS\ta\t1\nNO_HEADERS\tb\t2\n",
    ),
    "wait for the leader only": Task(
        _PRODUCER, "--topic {topic} --producer-property acks=1", "", text=_LINES, records=_RECORDS
    ),
    "send compressed batches": Task(
        _PRODUCER, "--topic {topic} --compression-codec zstd", "", text=_LINES, records=_RECORDS
    ),
    "send records with headers, timestamps and partitions": Task(
        _PRODUCER,
        "--topic {topic} --property parse.headers=true",
        "",
        text="h1:x,h2:y\tvalue\n",
        records="h1:x,h2:y\tnull\tvalue\n",
    ),
    "read all records from the beginning, then stop": Task(
        _CONSUMER, "--topic {topic} --from-beginning --timeout-ms 8000", r"Processed a total of 18 messages"
    ),
    "read a number of records": Task(
        _CONSUMER, "--topic {topic} --from-beginning --max-messages 2", r"Processed a total of 2 messages"
    ),
    "read one partition from an offset": Task(
        _CONSUMER, "--topic {topic} --partition 0 --offset 1 --max-messages 2", r"\A1\n2\n"
    ),
    "show keys, timestamps, offsets and headers": Task(
        _CONSUMER,
        "--topic {topic} --partition 0 --offset 2 --max-messages 1 --property print.key=true"
        " --property print.timestamp=true --property print.offset=true --property print.headers=true",
        rf"CreateTime:{START_MS + 2000}\s+Offset:2\s+h:x\s+key\s+2\n",
    ),
    "read as a member of a group, and commit": Task(
        _CONSUMER,
        "--topic {topic} --group {new} --from-beginning --max-messages 18",
        r"Processed a total of 18 messages",
    ),
    "list groups in some states": Task(_GROUPS, "--list --state Stable,Empty", r"{group}\s+Empty"),
    "show offsets and lag": Task(_GROUPS, "--describe --group {group}", r"{group}\s+{topic}\s+0\s+2\s+3\s+1\b"),
    "show members and their partitions": Task(
        _GROUPS, "--describe --group {group} --members --verbose", r"has no active members"
    ),
    "show state, assignor and coordinator": Task(
        _GROUPS, "--describe --group {group} --state", r"{group}\s+127\.0\.0\.1:\d+\s+\(\d\)\s+Empty\s+0"
    ),
    "show the effect of a reset": Task(
        _GROUPS, _RESET + "--to-earliest --dry-run", _offsets(0), then=("--describe --group {group}", _offsets(2))
    ),
    "reset to a point in time": Task(_GROUPS, _RESET + "--to-datetime 2026-09-21T14:13:20.500 --execute", _offsets(1)),
    "reset to a duration ago": Task(_GROUPS, _RESET + "--by-duration PT1H --execute", _offsets(3)),
    "reset some partitions to an offset": Task(
        _GROUPS, "--reset-offsets --group {group} --topic {topic}:0,1 --to-offset 1 --execute", _offsets(1)
    ),
    "shift forward or back": Task(_GROUPS, _RESET + "--shift-by -1 --execute", _offsets(1)),
    "reset to the end": Task(_GROUPS, _RESET + "--to-latest --execute", _offsets(3)),
    "reset to the committed offset, within the log": Task(_GROUPS, _RESET + "--to-current --execute", _offsets(2)),
    "delete the committed offsets of a topic": Task(
        _GROUPS, "--delete-offsets --group {group} --topic {topic}", r"Request succeed[\s\S]*{topic}\s+0\s+Successful"
    ),
    "delete the group": Task(_GROUPS, "--delete --group {group}", r"successfully|successful"),
    "show a topic's settings with their sources": Task(
        _CONFIGS,
        "--describe --entity-type topics --entity-name {topic} --all",
        r"min.insync.replicas=2 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:min.insync.replicas=2",
    ),
    "change a topic's settings": Task(
        _CONFIGS,
        "--alter --entity-type topics --entity-name {topic} --add-config retention.ms=86400000",
        r"Completed updating config for topic {topic}",
        then=("--describe --entity-type topics --entity-name {topic}", r"retention.ms=86400000"),
    ),
    "use the brokers' value again": Task(
        _CONFIGS,
        "--alter --entity-type topics --entity-name {topic} --delete-config min.insync.replicas",
        r"Completed updating config for topic {topic}",
        then=(
            "--describe --entity-type topics --entity-name {topic} --all",
            r"min.insync.replicas=1 sensitive=false synonyms=\{DEFAULT_CONFIG:min.insync.replicas=1\}",
        ),
    ),
    "show a broker's settings": Task(
        _CONFIGS, "--describe --entity-type brokers --entity-name 1 --all", r"(?m)^\s+log\.retention\.\w+="
    ),
    "change a broker's settings": Task(
        _CONFIGS,
        "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.backoff.ms=14000",
        r"Completed updating config for broker 1",
        then=(
            "--describe --entity-type brokers --entity-name 1",
            r"log.cleaner.backoff.ms=14000 .* synonyms=\{DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=14000",
        ),
    ),
    "move partitions to other brokers": Task(
        _REASSIGN, "--reassignment-json-file {file} --execute", r"Successfully started", content=_TO_ONE
    ),
    "move partitions at a limited rate": Task(
        _REASSIGN,
        "--reassignment-json-file {file} --execute --throttle 1000000",
        r"throttle limit was set to 1000000 B/s[\s\S]*Successfully started",
        content=_TO_ONE,
        then=(
            "--reassignment-json-file {file} --verify",
            r"Clearing broker-level throttles on brokers 1,2,3\s+Clearing topic-level throttles on topic {topic}",
        ),
    ),
    "change the number of replicas": Task(
        _REASSIGN,
        "--reassignment-json-file {file} --execute",
        r"Successfully started",
        content=_TO_ONE,
        then=("--reassignment-json-file {file} --verify", r"Status of partition reassignment:[\s\S]*{topic}-0"),
    ),
    "move all replicas away from a broker": Task(
        _REASSIGN,
        "--topics-to-move-json-file {file} --broker-list 1,2,3 --generate",
        r"Proposed partition reassignment configuration\s+\{",
        content='{"topics": [{"topic": "{topic}"}], "version": 1}',
    ),
    "elect the preferred leaders": Task(
        "kafka-leader-election",
        "--election-type preferred --topic {topic} --partition 0",
        r"(?i)already elected|successfully completed",
    ),
    "look up offsets by time": Task(
        "kafka-get-offsets", f"--topic {{topic}} --time {START_MS + 1500}", r"{topic}:0:2\b"
    ),
    "show first and last offsets": Task(
        "kafka-get-offsets",
        "--topic {topic} --time latest",
        r"{topic}:0:3\b",
        then=("--topic {topic} --time earliest", r"{topic}:0:0\b"),
    ),
    "delete old records": Task(
        "kafka-delete-records",
        "--offset-json-file {file}",
        r"partition: {topic}-0\s+low_watermark: 1",
        content='{"partitions": [{"topic": "{topic}", "partition": 0, "offset": 1}], "version": 1}',
    ),
    "show the brokers' log directories and sizes": Task(
        "kafka-log-dirs", "--describe --topic-list {topic}", r'"partition":"{topic}-0"'
    ),
    "measure throughput": Task(
        "kafka-producer-perf-test",
        "--topic {topic} --num-records 5000 --record-size 100 --throughput -1 --producer-props"
        " bootstrap.servers={servers}",
        r"5000 records sent",
    ),
}
#: Scripts that the page does not name.
FURTHER = {
    "consumer-perf-test": Task("kafka-consumer-perf-test", "--topic {topic} --messages 18", r", 18, "),
    "verifiable producer": Task("kafka-verifiable-producer", "--topic {topic} --max-messages 20", r'"acked":20'),
    "verifiable consumer": Task(
        "kafka-verifiable-consumer",
        "--topic {topic} --group-id {new} --max-messages 18 --reset-policy earliest",
        r'"name":"records_consumed"',
    ),
    "id of the cluster": Task("kafka-cluster", "cluster-id", r"Cluster ID: \S{22}"),
    # The script deletes only settings that the brokers describe.
    "change the settings of all brokers": Task(
        _CONFIGS,
        "--alter --entity-type brokers --entity-default --add-config log.cleaner.backoff.ms=16000",
        r"Completed updating default config for brokers in the cluster",
        then=(
            "--alter --entity-type brokers --entity-default --delete-config log.cleaner.backoff.ms",
            r"Completed updating default config for brokers in the cluster",
        ),
    ),
    "change a setting that a broker reads at its start": Task(
        _CONFIGS,
        "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
        r"log\.cleaner\.threads: a broker takes this setting from its file",
        refused=True,
    ),
    "cancel a reassignment that is not in progress": Task(
        _REASSIGN,
        "--reassignment-json-file {file} --cancel",
        r"Clearing broker-level throttles on brokers 1,2,3\s+Clearing topic-level throttles on topic {topic}",
        content=_TO_ONE,
    ),
    "end-to-end latency": Task("kafka-e2e-latency", "", r"Avg latency: [\d.]+ ms"),
}
#: Rows that name no request to a broker, or none that Kafka 3.9 has, or that have a test of their own.
WITHOUT_TASK = {
    "start a cluster on this machine",
    "start one broker, with its settings in a file",
    "list the running processes and their addresses",
    "stop the cluster",
    "stop the cluster and remove its data",
    "delete the topic",
    "read new records as they arrive",
    "read from a point in time",
    "measure how fast a group consumes",
    "list the first offsets of segments by time",
    "print the content of a log's files",
    # test_tools_with_a_dead_broker.py
    "check the health of the cluster",
    "show why a partition is under-replicated",
    "show reassignments in progress",
    "cancel reassignments",
    # tests/processes/test_log_dir_moves.py
    "move a replica to another log directory of its broker",
    "show the progress of such moves",
    "migrate offsets of old consumers from ZooKeeper",
}


def test_each_row_of_the_page_has_a_task() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| Kafka | " not in line]
    rows = {line.strip("|").split(" | ")[0].strip() for line in lines}
    assert rows - {"task", "script"} == (set(TASKS) - {"delete the group"}) | WITHOUT_TASK


@pytest.fixture
def topic(cluster: ClusterUnderTest) -> str:
    """Return a new topic with three records, a second apart, in each partition."""
    name = f"tools-{next(_numbers)}"
    cluster.create_topic(name, PARTITIONS)
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition in range(PARTITIONS):
        for number in range(PER_PARTITION):
            at = START_MS + 1_000 * number
            producer.produce(name, b"%d" % number, b"key", partition, timestamp=at, headers=[("h", b"x")])
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def group(cluster: ClusterUnderTest, topic: str) -> str:
    """Return a new group that has committed the offset 2 in each partition."""
    name = f"tools-group-{next(_numbers)}"
    # A consumer asks until there is a coordinator. An AdminClient gives up while __consumer_offsets is being created.
    consumer = ck.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name})
    offsets = [ck.TopicPartition(topic, partition, 2) for partition in range(PARTITIONS)]
    assert all(each.error is None for each in consumer.commit(offsets=offsets, asynchronous=False))
    consumer.close()
    return name


@pytest.mark.parametrize("name", [*TASKS, *FURTHER])
def test_shell_tool_does_its_task(cluster: ClusterUnderTest, topic: str, group: str, tmp_path: Path, name: str) -> None:
    task = TASKS.get(name) or FURTHER[name]
    file = tmp_path / "file.json"
    names = {
        "servers": cluster.bootstrap_servers,
        "topic": topic,
        "group": group,
        "new": f"new-{next(_numbers)}",
        "file": str(file),
    }
    file.write_text(filled(task.content, names))
    status, shown = run_tool(task.script, arguments_of(task, task.arguments, names), task.text)
    if task.refused and not IS_CONTROL:
        assert re.search(task.shows, shown), shown
        return
    assert status == 0 or task.script == "kafka-console-consumer", shown
    assert task.refused or re.search(filled(task.shows, names), shown), shown
    assert task.refused or "Exception" not in shown.replace("TimeoutException", ""), shown
    if task.then is not None:
        arguments, wanted = task.then
        status, shown = run_tool(task.script, arguments_of(task, arguments, names))
        assert status == 0, shown
        assert re.search(filled(wanted, names), shown), shown
    if task.script == _PRODUCER:
        reads = "--from-beginning --timeout-ms 8000 --property print.headers=true --property print.key=true"
        _, shown = run_tool(_CONSUMER, arguments_of(task, f"--topic {{topic}} {reads}", names))
        lines, sent = shown.splitlines(), task.records.splitlines()
        assert set(sent) <= set(lines), shown
        assert f"Processed a total of {len(sent) + PARTITIONS * PER_PARTITION} messages" in lines, shown


def filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def arguments_of(task: Task, arguments: str, names: dict[str, str]) -> list[str]:
    """Return the arguments with the names filled in and the addresses of the brokers, as each script takes them."""
    given = shlex.split(filled(arguments, names))
    if task.script == "kafka-producer-perf-test":
        return given
    if task.script == "kafka-e2e-latency":
        return [names["servers"], names["topic"], "20", "all", "100"]
    return [*given, "--bootstrap-server", names["servers"]]


def test_console_consumer_reads_new_records_as_they_arrive(cluster: ClusterUnderTest, topic: str) -> None:
    asked = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--max-messages", "1"]
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    with subprocess.Popen(command_of(_CONSUMER, *asked), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:

        def is_read() -> bool:
            producer.produce(topic, b"new")
            producer.flush(30)
            return process.poll() is not None

        try:
            wait_for("the consumer to read a record", is_read, 60)
            assert process.stdout is not None and process.stdout.read() == b"new\n"
        finally:
            process.kill()


def test_dump_tool_prints_the_records_of_a_log(cluster: ClusterUnderTest, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    (segment,) = cluster.replica_dir(cluster.leader(tp), tp).glob("*.log")
    _, shown = run_tool("kafka-dump-log", ["--files", str(segment), "--print-data-log"])
    assert re.search(r"offset: 2 .*headerKeys: \[h\] key: key payload: 2", shown), shown
