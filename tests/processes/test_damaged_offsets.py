"""An offsets topic with records of unknown versions, and with damaged bytes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.configs.log_config import LogConfig
from storage.files import RealFiles
from storage.log.log import Log
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.coordinators import coordinator, offsets_partition
from tests.processes.harness.waiting import wait_for
from tidelog import Consumer, OffsetAndMetadata, TopicPartition
from tidelog.groups.offsets_topic import CommitKey, GroupKey, encode_key
from tidelog.records.encode import encode_batch

pytestmark = pytest.mark.slow

GROUP = "g"
WARNING = "were skipped"
#: A group's and a commit's key, and what else a key may be.
KEYS_OF_NOBODY = [
    None,
    b"",
    b"\x00",
    b"\x00\x09" + b"of a later version",
    b"\xff\xff" + b"of no version",
    encode_key(CommitKey(GROUP, "t", 0))[:-1],
    b"\x00\x01\x7f\xff" + b"a name that is longer than the key",
    b"\x00\x01\xff\xfe" + b"a name of a negative length",
    b"\x00\x01\x00\x02\xff\xfe\x00\x01t\x00\x00\x00\x00",
]
VALUES_OF_NOBODY = [
    b"",
    b"\x00",
    b"\x00\x63" + b"of a later version",
    b"\xff\xff" + b"of no version",
    b"\x00\x03\x00\x00\x00\x00",
    b"\x00\x03" + b"\xff" * 40,
]


def garbage() -> list[tuple[bytes | None, bytes | None]]:
    """Records that the group's own ones stand among; none of them says that anything was committed."""
    keys = [(key, value) for key in KEYS_OF_NOBODY for value in (None, b"value")]
    return keys + [
        (encode_key(key), value)
        for key in (CommitKey("another", "t", 0), GroupKey("another"))
        for value in VALUES_OF_NOBODY
    ]


def append(directory: Path, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """Append one batch for each record to the log of a stopped broker."""
    log = Log.open(directory, LogConfig(), RealFiles(), recovery_point=0, clean=True)
    now_ms = time.time_ns() // 1_000_000
    for key, value in records:
        log.append_as_leader(encode_batch([(now_ms, key, value, ())]), log.latest_epoch or 0, now_ms)
    log.close()


def spoil(directory: Path, what: bytes) -> None:
    """Flip one bit of the batch that contains these bytes."""
    (segment,) = directory.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(what)] ^= 1
    segment.write_bytes(content)


def start_anew(cluster: RunningCluster) -> None:
    cluster.restart(1)
    wait_for("broker 1 to coordinate the group again", lambda: coordinator(cluster, GROUP) == 1)


def committed(consumer: Consumer, tps: Sequence[TopicPartition]) -> list[int | None]:
    return [found and found.offset for found in consumer.committed(tps).values()]


def test_unknown_offsets_records_are_skipped_with_one_warning(tmp_path: Path) -> None:
    settings = {"offsets_topic_replication_factor": 1, "group_initial_rebalance_delay_ms": 0}
    with running_cluster(tmp_path, brokers=1, **settings) as cluster:
        tps = cluster.create_topic("t", partitions=3, replicas=1, configs={"min.insync.replicas": "1"})
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            for number, tp in enumerate(tps, 1):
                consumer.commit({tp: OffsetAndMetadata(number, f"spoil {number}")})
            kept = cluster.replica_dir(1, offsets_partition(GROUP))
            before = cluster.said(1, WARNING)

            cluster.terminate(1)
            append(kept, garbage())
            start_anew(cluster)
            consumer.commit({tps[0]: OffsetAndMetadata(11, "behind")})
            assert committed(consumer, tps) == [11, 2, 3]
            assert cluster.said(1, WARNING) == before + 1

            cluster.terminate(1)
            spoil(kept, b"spoil 2")
            start_anew(cluster)
            assert committed(consumer, tps) == [11, None, 3]
            consumer.commit({tps[1]: OffsetAndMetadata(22, "anew")})
            assert committed(consumer, tps) == [11, 22, 3]
