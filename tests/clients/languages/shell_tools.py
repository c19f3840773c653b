"""Kafka's own shell tools, which are main classes in the jars that Maven fetches."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tools.check.toolbox import kafka_command

#: The main class of each script of Kafka 3.9.
MAIN_CLASSES = {
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
_TIMEOUT_S = 90


def command_of(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script with these arguments, in a small JVM."""
    java, *options = kafka_command(MAIN_CLASSES[script])
    return [java, *options[:-3], "-Xmx256m", "-XX:TieredStopAtLevel=1", *options[-3:], *arguments]


def run_tool(script: str, arguments: Sequence[str], text: str = "") -> tuple[int, str]:
    """Run a script to its end with `text` as its input; return the exit status and all that it printed."""
    ended = subprocess.run(
        command_of(script, *arguments),
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return ended.returncode, ended.stdout
