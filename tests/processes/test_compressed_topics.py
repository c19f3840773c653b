"""Every codec through real brokers: what was produced comes back, and stays compressed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from tests.processes.harness.asking import ask
from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.command import Shell
from tidelog import Consumer, Producer
from tidelog.errors import InvalidRecordError, UnsupportedCompressionTypeError
from tidelog.protocol.messages import ProducePartition, ProduceRequest, ProduceResponse
from tidelog.records import HEADER_BYTES, Codec, compress, encode_batch, iter_headers, read_header
from tidelog.records.header import HEADER, seal

pytestmark = pytest.mark.xdist_group("codecs")  # all tests share one cluster

NAMES = [codec.name.lower() for codec in Codec]
LINES = [b"line %d, much like the one before it" % number for number in range(2_000)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, another_root: Callable[[], str]) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), zookeeper=another_root()) as started:
        yield started


@pytest.mark.parametrize("name", NAMES)
def test_compressed_records_are_consumed_and_stored_compressed(cluster: RunningCluster, name: str) -> None:
    shell = Shell(cluster.local.home.parent, cluster.local.home)
    [tp] = cluster.create_topic(f"by-command-{name}")
    text = b"".join(line + b"\n" for line in LINES)
    shell.succeed("produce", tp.topic, "--compression", name, given=text)
    assert shell.succeed("consume", tp.topic, "--from", "beginning", "--count", str(len(LINES))) == text

    cluster.wait_same_end(tp)
    for broker_id in cluster.broker_ids:
        log = (cluster.local.broker_dir(broker_id) / str(tp) / f"{0:020}.log").read_bytes()
        assert {header.codec for _, header in iter_headers(log)} == {Codec[name.upper()]}
        assert name == "none" or len(log) < len(text) / 2


def test_one_partition_of_all_codecs_is_read_and_searched_by_time(cluster: RunningCluster) -> None:
    [tp] = cluster.create_topic("mixed")
    expected = []
    for turn, name in enumerate(NAMES):
        with Producer(cluster.bootstrap_servers, compression_type=name, linger_ms=20) as producer:
            for number in range(100):
                expected.append((1_000 * turn + number, b"%s %d" % (name.encode(), number)))
                producer.send(tp.topic, expected[-1][1], timestamp_ms=1_700_000_000_000 + expected[-1][0])
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=10_000
    ) as consumer:
        consumer.assign([tp])
        found = []
        while len(found) < len(expected):
            polled = consumer.poll(10_000)
            assert polled, f"only {len(found)} of {len(expected)} came"
            found += [(record.timestamp - 1_700_000_000_000, record.value) for record in polled[tp]]
        assert found == expected
        for turn in range(len(NAMES)):
            answer = consumer.offsets_for_times({tp: 1_700_000_000_000 + 1_000 * turn + 42})[tp]
            assert answer is not None and answer.offset == 100 * turn + 42


def test_undefined_codec_is_refused_without_a_write(cluster: RunningCluster) -> None:
    [tp] = cluster.create_topic("unknown-codec")
    for codec in (5, 6, 7):
        batch = bytearray(encode_batch([(1_700_000_000_000, None, b"x", ())]))
        HEADER.pack_into(batch, 0, *read_header(batch)._replace(attributes=codec))
        seal(batch, 0, len(batch))
        request = ProduceRequest(-1, 5000, (ProducePartition(*tp, bytes(batch)),))
        answer = ask(cluster.address(cluster.leader(tp)), request)
        assert isinstance(answer, ProduceResponse)
        assert answer.partitions[0].error_code == UnsupportedCompressionTypeError.code
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.end_offsets([tp]) == {tp: 0}


def test_look_up_among_unreadable_records_is_refused_at_once(cluster: RunningCluster) -> None:
    [tp] = cluster.create_topic("unreadable")
    block = compress(Codec.ZSTD, b"no record")
    batch = bytearray(HEADER_BYTES) + block
    time = 1_700_000_000_000
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, -1, 2, 0, Codec.ZSTD, 0, time, time, -1, -1, -1, 1)
    seal(batch, 0, len(batch))
    answer = ask(cluster.address(cluster.leader(tp)), ProduceRequest(-1, 5000, (ProducePartition(*tp, bytes(batch)),)))
    assert isinstance(answer, ProduceResponse) and not answer.partitions[0].error_code
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.end_offsets([tp])
        started = monotonic()
        with pytest.raises(InvalidRecordError, match=r"unreadable-0: .* at offset 0 cannot be read"):
            consumer.offsets_for_times({tp: time})
        assert monotonic() - started < 5, "not repeated until the deadline"


def test_highly_compressed_batch_is_searched_by_time(cluster: RunningCluster) -> None:
    [tp] = cluster.create_topic("bomb")
    with Producer(
        cluster.bootstrap_servers, compression_type="zstd", max_request_size=16 << 20, batch_size=16 << 20
    ) as producer:
        for number in range(3):
            producer.send(tp.topic, bytes(4 << 20), timestamp_ms=1_700_000_000_000 + number).result(10)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        answer = consumer.offsets_for_times({tp: 1_700_000_000_001})[tp]
    assert answer is not None and (answer.offset, answer.timestamp) == (1, 1_700_000_000_001)
