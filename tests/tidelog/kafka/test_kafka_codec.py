"""Every message of Kafka's protocol in every version: round trips, cut and damaged bytes, and huge lengths."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tracemalloc

import pytest

from tests.tidelog.kafka.any_kafka_message import MESSAGES, any_message, small_message, versions
from tidelog.errors import ProtocolError, UnsupportedVersionError
from tidelog.protocol.kafka.codec import decode, encode, encode_buffers
from tidelog.protocol.kafka.messages.group_membership import HeartbeatRequest, JoinGroupResponse
from tidelog.protocol.kafka.messages.log_offsets import ListOffsetsRequest
from tidelog.protocol.kafka.messages.metadata import (
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.protocol.kafka.messages.records import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.kafka.schema import Message
from tools.fuzz.kafka_examples import kafka_example

EACH = pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)


@EACH
def test_messages_round_trip_in_every_version(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in versions(cls):
        for _ in range(12):
            message = any_message(rng, cls, version)
            body = encode(message, version)
            decoded = decode(cls, version, body)
            assert decoded == message
            assert encode(decoded, version) == body
            assert b"".join(encode_buffers(message, version)) == body


@EACH
def test_every_cut_of_a_message_is_a_protocol_error(cls: type[Message]) -> None:
    for version in versions(cls):
        body = encode(kafka_example(cls, version), version)
        for size in range(len(body)):
            with pytest.raises(ProtocolError):
                decode(cls, version, body[:size])


@EACH
def test_bytes_after_a_message_are_a_protocol_error(cls: type[Message]) -> None:
    for version in versions(cls):
        body = encode(kafka_example(cls, version), version)
        for trailing in (b"\0", b"\xff" * 9):
            with pytest.raises(ProtocolError, match=r"bytes after the end"):
                decode(cls, version, body + trailing)
            assert decode(cls, version, body + trailing, ignores_rest=True) == decode(cls, version, body)


@EACH
def test_damaged_messages_decode_or_are_a_protocol_error(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in versions(cls):
        body = encode(kafka_example(cls, version), version)
        for _ in range(40 if body else 0):
            damaged = bytearray(body)
            for _ in range(rng.randint(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            _decodes_or_is_refused(cls, version, bytes(damaged))
            _decodes_or_is_refused(cls, version, rng.randbytes(rng.randrange(100)))


@EACH
def test_huge_lengths_allocate_nothing(cls: type[Message]) -> None:
    """Each place of the message contains 2 GiB once, in all forms of lengths.

    The message is small, because tracing makes the decoder ten times as slow.
    """
    for version in {cls.valid.first, cls.valid.last}:
        body = encode(small_message(cls, version), version)
        assert decode(cls, version, body)
        tracemalloc.start()
        try:
            for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff"):
                for at in range(len(body)):
                    with contextlib.suppress(ProtocolError):
                        decode(cls, version, body[:at] + length + body[at + len(length) :])
            assert tracemalloc.get_traced_memory()[1] < 1 << 18
        finally:
            tracemalloc.stop()


def _decodes_or_is_refused(cls: type[Message], version: int, body: bytes) -> None:
    try:
        message = decode(cls, version, body)
    except ProtocolError:
        return
    assert decode(cls, version, encode(message, version)) == message


def test_record_bytes_are_not_copied() -> None:
    records = bytes(100_000)
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=(_produced(records, records),))
    body = bytearray(encode(request, 9))
    views = [each.records for each in decode(ProduceRequest, 9, body).topic_data[0].partition_data]
    assert [isinstance(view, memoryview) and view.obj is body for view in views] == [True, True]
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(_fetched(0, records),)),))
    before, sent, after = encode_buffers(response, 11)
    assert sent is records
    assert (len(before), len(after)) == (63, 0)


def _produced(*records: bytes) -> TopicProduceData:
    partitions = tuple(PartitionProduceData(index=index, records=each) for index, each in enumerate(records))
    return TopicProduceData(name="t", partition_data=partitions)


def _fetched(partition: int, records: bytes | None) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=0, high_watermark=9, aborted_transactions=None, records=records
    )


def test_null_records_and_empty_records_are_different() -> None:
    for records in (None, b""):
        response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(_fetched(0, records),)),))
        assert decode(FetchResponse, 11, encode(response, 11)) == response
        assert decode(FetchResponse, 12, encode(response, 12)) == response


def test_a_field_that_the_version_lacks_is_refused_unless_ignorable() -> None:
    moved = PartitionProduceResponse(
        index=0, error_code=6, base_offset=-1, log_start_offset=5, current_leader=LeaderIdAndEpoch(leader_id=2)
    )
    response = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(moved,)),))
    assert decode(ProduceResponse, 10, encode(response, 10)) == response
    with pytest.raises(UnsupportedVersionError, match=r"current_leader: version 9 lacks this field"):
        encode(response, 9)
    stayed = PartitionProduceResponse(index=0, error_code=0, base_offset=0, log_start_offset=5)
    response = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(stayed,)),))
    (decoded,) = decode(ProduceResponse, 3, encode(response, 3)).responses[0].partition_responses
    assert decoded.log_start_offset == -1


def test_null_is_refused_in_versions_that_do_not_allow_it() -> None:
    with pytest.raises(ProtocolError, match=r"topics: null is not allowed"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError, match=r"topics: null is not allowed"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    nameless = MetadataResponse(brokers=(), topics=(MetadataResponseTopic(error_code=100, name=None, partitions=()),))
    assert decode(MetadataResponse, 12, encode(nameless, 12)) == nameless
    with pytest.raises(ProtocolError, match=r"topics\.name: null is not allowed"):
        encode(nameless, 11)


def test_nullable_structures_have_a_marker_of_one_or_minus_one() -> None:
    body = encode(DescribeTopicPartitionsRequest(topics=()), 0)
    assert body.endswith(b"\xff\0")
    with pytest.raises(ProtocolError, match=r"cursor: a marker of 2"):
        decode(DescribeTopicPartitionsRequest, 0, body[:-2] + b"\x02\0")


def test_unknown_tagged_fields_are_skipped() -> None:
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert body.endswith(b"\0")
    message = decode(HeartbeatRequest, 4, body[:-1] + b"\x02\x05\x03abc\xff\x01\x00")
    assert message == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01",
        b"\x01\x05\x04abc",
        b"\x02\x05\x00\x05\x00",
        b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\x0f",
        b"\x01\x80\x80\x80\x80\x80\x00\x00",
        b"\xe9\x07" + b"".join(bytes((0x80 | n & 0x7F, n >> 7, 0)) for n in range(1001)),
    ],
    ids=["missing", "too short", "twice", "2 GiB of them", "negative", "a tag of six bytes", "more than a thousand"],
)
def test_malformed_tagged_fields_are_a_protocol_error(tags: bytes) -> None:
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    with pytest.raises(ProtocolError):
        decode(HeartbeatRequest, 4, body[:-1] + tags)


def test_elements_of_a_request_are_bounded_over_all_its_arrays() -> None:
    def request(topics: int, partitions: int) -> bytes:
        part = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=None),) * partitions)
        return encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=(part,) * topics), 9)

    fitting = request(255, 256)
    assert len(decode(ProduceRequest, 9, fitting).topic_data) == 255
    with pytest.raises(ProtocolError, match="more than 65536 elements"):
        decode(ProduceRequest, 9, request(256, 256))


def test_tagged_fields_of_a_request_count_as_elements() -> None:
    def request(topics: int) -> bytes:
        tags = bytes((20,)) + b"".join(bytes((tag, 0)) for tag in range(20))
        return bytes((0xFF, 0xFF, 0x03)) + (b"\x02t" + tags) * topics + bytes(4)

    assert len(request(0xFFFE)) > 2_000_000
    with pytest.raises(ProtocolError, match="more than 65536 elements"):
        decode(MetadataRequest, 9, request(0xFFFE))


def test_a_tagged_field_consists_of_its_value_alone() -> None:
    body = encode(ApiVersionsResponse(error_code=0, api_keys=()), 3)
    assert decode(ApiVersionsResponse, 3, body[:-1] + b"\x01\x03\x01\x01").zk_migration_ready
    for size, value in ((0, b""), (2, b"\x01\x01")):
        with pytest.raises(ProtocolError):
            decode(ApiVersionsResponse, 3, body[:-1] + b"\x01\x03" + bytes((size,)) + value)


def test_unsupported_versions_are_refused() -> None:
    for version in (-1, 10):
        with pytest.raises(UnsupportedVersionError, match=r"ListOffsetsRequest version -?\d+ is not one of 0–9"):
            decode(ListOffsetsRequest, version, b"")
        with pytest.raises(UnsupportedVersionError):
            encode(ListOffsetsRequest(replica_id=-1, topics=()), version)


def test_values_that_do_not_fit_their_field_are_a_protocol_error() -> None:
    request = FetchRequest(max_wait_ms=1 << 31, min_bytes=0, topics=())
    with pytest.raises(ProtocolError, match=r"FetchRequest version 4 cannot be encoded"):
        encode(request, 4)
    for version in (3, 4):  # with and without compact lengths
        for text in ("x" * 32768, "\ud800"):
            with pytest.raises(ProtocolError):
                encode(HeartbeatRequest(group_id=text, generation_id=1, member_id="m"), version)
    with pytest.raises(ProtocolError, match=r"a UUID has 16 bytes"):
        encode(FetchResponse(responses=(FetchableTopicResponse(topic_id=b"short", partitions=()),)), 13)


def test_long_strings_and_arrays_have_lengths_of_two_bytes() -> None:
    for size in (125, 126, 127, 128, 16383, 16384, 32767):
        message = HeartbeatRequest(group_id="g" * size, generation_id=1, member_id="m")
        assert decode(HeartbeatRequest, 4, encode(message, 4)) == message
    with pytest.raises(ProtocolError, match=r"group_id: a length of 32768"):
        decode(HeartbeatRequest, 4, b"\x81\x80\x02" + b"g" * 32768 + bytes(7))


def test_messages_show_and_compare_their_fields() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    same = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    other = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    assert (message == same, hash(message) == hash(same), message == other) == (True, True, False)
    assert repr(message) == "HeartbeatRequest(group_id='g', generation_id=1, member_id='m', group_instance_id=None)"
    assert JoinGroupResponse.flexible_from == 6


def test_the_codec_imports_no_message_family() -> None:
    code = "import sys, tidelog.protocol.kafka.headers; print([m for m in sys.modules if '.kafka.messages.' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
