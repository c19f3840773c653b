"""Starting from a point in time against real brokers: the client, the commands, and what happens while leaders die."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.command import Shell
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, NoOffset, OlderRecords, Producer, StartingPoint, StartReason, TopicPartition
from tidelog.errors import LeaderNotAvailableError, TimeoutError, UnknownTopicOrPartitionError

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


def ask(shell: Shell, *arguments: str) -> tuple[str, list[str]]:
    """Standard output, and the lines on standard error without our name before them."""
    outcome = shell.run(*arguments)
    assert outcome.status == 0, outcome.complaint
    return outcome.output.decode(), [line.removeprefix("tidelog: ") for line in outcome.complaint_lines]


def five_partitions(cluster: RunningCluster, now_ms: int) -> list[TopicPartition]:
    """Return partitions for "an hour ago": inside the log, deleted records, only newer, only older, and empty."""
    tps = cluster.create_topic("t", partitions=5)
    minutes_ago = {0: [120, 61, 60, 90, 10], 1: [120, 110, 30], 2: [20, 100, 1], 3: [600, 300]}
    with Producer(cluster.bootstrap_servers) as producer:
        for partition, ages in minutes_ago.items():
            for age in ages:
                at_ms = now_ms - age * 60_000
                producer.send("t", b"%d" % age, partition=partition, timestamp_ms=at_ms).get(30)
    assert cluster.admin.delete_records({tps[1]: 2}) == {tps[1]: 2}
    return tps


def test_client_and_commands_report_where_each_partition_starts(
    cluster: RunningCluster,
) -> None:
    now_ms = time.time_ns() // 1_000_000
    tps = five_partitions(cluster, now_ms)
    shell = Shell(cluster.local.home.parent, cluster.local.home)
    ago = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(hours=1)
    target_ms = now_ms - HOUR_MS
    at = [now_ms - minutes * 60_000 for minutes in (60, 30, 20)]
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none", consumer_timeout_ms=30_000
    ) as consumer:
        consumer.assign(tps)
        points = consumer.seek_to_time(ago)
        assert {tp.partition: point._replace(leader_epoch=None) for tp, point in points.items()} == {
            0: StartingPoint(2, StartReason.FOUND, at[0]),
            1: StartingPoint(2, StartReason.BEFORE_LOG_START, at[1], None, OlderRecords.GONE),
            2: StartingPoint(0, StartReason.BEFORE_LOG_START, at[2], None, OlderRecords.NEVER_WRITTEN),
            3: StartingPoint(2, StartReason.PAST_END),
            4: StartingPoint(0, StartReason.EMPTY, None, None, OlderRecords.NEVER_WRITTEN),
        }
        got = sorted((record.partition, record.value) for record in islice(consumer, 7))
        assert consumer.poll(500) == {}
        assert got == [(0, b"10"), (0, b"60"), (0, b"90"), (1, b"30"), (2, b"1"), (2, b"100"), (2, b"20")]
        outcomes = consumer.offsets_for_times(dict.fromkeys(tps, target_ms), partial=True)
        assert [outcomes[tp].found and outcomes[tp].found.offset for tp in tps] == [2, 2, 0, None, None]
        assert [outcomes[tp].reason for tp in tps[3:]] == ["past_end", "empty"]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset=f"@{target_ms}") as consumer:
        consumer.assign(tps)
        assert [consumer.position(tp) for tp in tps] == [2, 2, 0, 2, 0]

    text, reported = ask(shell, "consume", "t", "--from", f"@{target_ms}", "--json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert sorted((line["partition"], line["value"].encode()) for line in lines) == got
    assert [line.split(": ")[:2] for line in reported[1:]] == [["t-3", "past_end"], ["t-4", "empty"]]
    assert reported[0] == (
        "before_log_start: 2 of 5 partitions (1, 2) start with their oldest record, which is newer; "
        "older ones of partition 1 are gone"
    )
    until = str(now_ms - 30 * 60_000)
    text, _ = ask(shell, "consume", "t", "--from", f"@{target_ms}", "--until", f"@{until}", "--partition", "0")
    assert text.split() == ["60", "90"]

    answers = json.loads(ask(shell, "offsets", "t", "--at", str(target_ms), "--json")[0])["partitions"]
    assert [(each["offset"], each["before_log_start"], each["reason"]) for each in answers] == [
        (2, False, None), (2, True, None), (0, True, None), (None, False, "past_end"), (None, False, "empty"),
    ]  # fmt: skip
    shown, _ = ask(shell, "offsets", "t", "--at", "-1h")
    assert "before_log_start: older records were deleted" in shown and "past_end: every record is older" in shown
    for spelled in ("yesterday 00:00 Europe/Berlin", "yesterday 12:00 +02:00", "yesterday Z"):
        assert "before_log_start" in ask(shell, "offsets", "t", "--at", spelled)[0]
    _, warned = ask(shell, "offsets", "t", "--at", "2026-10-25 02:30", "--timezone", "Europe/Berlin")
    assert len(warned) == 1 and "occurred twice" in warned[0]
    _, warned = ask(shell, "offsets", "t", "--at", "1550804131")
    assert warned == [
        "times[t-0]: 1550804131 ms is 1970-01-18T22:46:44.131Z; if seconds were meant, give milliseconds: 1550804131000"
    ]
    refused = shell.run("consume", "t", "--from", "1550804131")
    assert refused.status == 1
    assert "is past the end of all 5 partitions of 't', the farthest of which ends at 5; " in refused.complaint
    assert refused.complaint.endswith("written as @1550804131 in milliseconds or @1550804131000 if these are seconds\n")

    described = json.loads(ask(shell, "topic", "describe", "t", "--times", "--json")[0])
    assert [each["records"] for each in described["partitions"]] == [5, 1, 3, 2, 0]
    assert all(each["bytes"] > 0 for each in described["partitions"][:4])
    assert described["partitions"][0]["oldest"] == {"offset": 0, "timestamp": now_ms - 120 * 60_000}
    assert described["partitions"][0]["newest"] == {"offset": 4, "timestamp": now_ms - 10 * 60_000}
    assert {each["kind"] for each in described["warnings"]} == {"out_of_order", "far_apart"}
    shown, warned = ask(shell, "topic", "describe", "t", "--times")
    headings, first, *_ = shown.splitlines()
    assert headings.split() == ["PARTITION", "RECORDS", "SIZE", "FIRST", "OFFSET", "END", "OFFSET", "OLDEST", "NEWEST"]
    assert first.split()[:2] == ["0", "5"] and first.split()[3:5] == ["0", "5"]
    assert len(warned) == len(described["warnings"])


def test_a_record_that_no_follower_has_yet_is_above_the_high_watermark(cluster: RunningCluster) -> None:
    (tp,) = cluster.create_topic("t")
    leader = cluster.leader(tp)
    with (
        Producer(cluster.bootstrap_servers, acks=1) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer,
    ):
        producer.send("t", b"seen", partition=0, timestamp_ms=1000).get(30)
        cluster.wait_same_end(tp)
        followers = [broker for broker in cluster.broker_ids if broker != leader]
        with cluster.paused(followers[0]), cluster.paused(followers[1]):
            producer.send("t", b"hidden", partition=0, timestamp_ms=2000).get(30)
            reported = consumer.offsets_for_times({tp: 1500}, 5000, partial=True)[tp]
            assert (reported.found, reported.reason) == (None, NoOffset.ABOVE_HIGH_WATERMARK)
            assert consumer.offsets_for_times({tp: 1500}, 5000) == {tp: None}
        found = wait_for("the record to be committed", lambda: consumer.offsets_for_times({tp: 1500})[tp])
        assert (found.offset, found.timestamp) == (1, 2000)


@pytest.mark.slow
def test_leaderless_partition_does_not_hide_the_others(cluster: RunningCluster) -> None:
    (alone,) = cluster.create_topic("alone", replicas=1, configs={"min.insync.replicas": "1"})
    (tp,) = cluster.create_topic("t")
    with Producer(cluster.bootstrap_servers) as producer:
        for topic in ("alone", "t"):
            producer.send(topic, b"v", partition=0, timestamp_ms=1000).get(30)
    cluster.kill(cluster.leader(alone))
    shell = Shell(cluster.local.home.parent, cluster.local.home)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        nowhere = TopicPartition("nowhere", 0)
        outcomes = consumer.offsets_for_times({alone: 0, tp: 0, nowhere: 0}, 10_000, partial=True)
        assert outcomes[tp].found is not None and outcomes[tp].found.offset == 0
        assert outcomes[alone].reason is NoOffset.RETRY
        assert isinstance(outcomes[alone].error, LeaderNotAvailableError)
        assert outcomes[nowhere].reason is NoOffset.REFUSED
        assert isinstance(outcomes[nowhere].error, UnknownTopicOrPartitionError)
        with pytest.raises(TimeoutError, match=r"in \d+ ms for alone-0: no leader is known$"):
            consumer.offsets_for_times({alone: 0, tp: 0}, 1000)
        consumer.assign([alone, tp])
        with pytest.raises(TimeoutError, match=r"in \d+ ms for alone-0: no leader is known$"):
            consumer.seek_to_time(0, timeout_ms=1000)
    silent = shell.run("offsets", "alone", "--at", "0", "--timeout", "1")
    assert silent.status == 1 and b"retry: no leader is known" in silent.output
    assert silent.complaint == (
        "tidelog: 1 partition of 1 did not answer (no leader is known): tidelog explain alone/0 shows why\n"
    )
    silent = shell.run("topic", "describe", "alone", "--times", "--timeout", "5")
    assert silent.status == 1 and "tidelog explain alone/0 shows why" in silent.complaint


@contextmanager
def a_writer(cluster: RunningCluster, tps: list[TopicPartition]) -> Iterator[dict[TopicPartition, list[int]]]:
    """Writes records of now, as long as the block runs; the timestamps of those that were acknowledged, by offset."""
    written: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
    stop = threading.Event()

    def work() -> None:
        with Producer(cluster.bootstrap_servers) as producer:
            while not stop.is_set():
                for tp in tps:
                    at_ms = time.time_ns() // 1_000_000
                    place = producer.send(tp.topic, b"v", partition=tp.partition, timestamp_ms=at_ms).get(60)
                    assert place.offset == len(written[tp])
                    written[tp].append(at_ms)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()


def test_no_record_after_the_time_is_skipped_while_a_leader_dies(
    cluster: RunningCluster,
) -> None:
    tps = cluster.create_topic("t", partitions=3)
    points: list[tuple[int, dict[TopicPartition, StartingPoint]]] = []
    victim = cluster.leader(tps[0])
    with (
        a_writer(cluster, tps) as written,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="none") as consumer,
    ):
        consumer.assign(tps)
        wait_for("some records", lambda: all(len(each) > 20 for each in written.values()))
        for number in range(120):
            if number == 40:
                cluster.kill(victim)
            # A little in the future, too, where the end is taken.
            target_ms = time.time_ns() // 1_000_000 - 40 + number % 45
            points.append((target_ms, consumer.seek_to_time(target_ms, timeout_ms=60_000)))
    reasons = set()
    for target_ms, each in points:
        for tp, point in each.items():
            wanted = [offset for offset, at_ms in enumerate(written[tp]) if at_ms >= target_ms]
            assert all(offset >= point.offset for offset in wanted), (target_ms, tp, point)
            if point.reason is StartReason.FOUND:
                assert point.offset == wanted[0]
            reasons.add(point.reason)
    assert reasons >= {StartReason.FOUND, StartReason.PAST_END}
